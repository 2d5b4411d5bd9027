"""The commands about alerts: status; ack, mute, unmute and rules (requests.py)."""
