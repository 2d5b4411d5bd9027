"""One module per type of channel."""
