"""What makes an episode of an alert: its id, its taking up after a restart, and whether it flaps. Pure."""
