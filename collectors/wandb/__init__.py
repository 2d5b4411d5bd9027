"""Reads W&B through a child process."""
