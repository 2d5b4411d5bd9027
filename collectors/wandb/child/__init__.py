"""The child process that runs the W&B SDK."""
