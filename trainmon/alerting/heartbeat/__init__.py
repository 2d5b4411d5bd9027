"""Heartbeats: reports while nothing is wrong, start and stop notifications, tests, and the monitor's self-check."""
