"""Notifications: their messages, their channels, and the threads that send them."""
