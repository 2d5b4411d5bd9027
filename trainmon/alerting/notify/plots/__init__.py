"""The plots in messages, drawn in a child process."""
