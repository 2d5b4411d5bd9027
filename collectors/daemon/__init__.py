"""Reads the alerts of a daemon on another machine."""
