"""What is due, gathered into few messages. Pure."""
