"""Alerts, and the notifications that tell of them."""
