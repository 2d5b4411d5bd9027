"""The commands about alerts: status, ack, mute, unmute, rules."""
