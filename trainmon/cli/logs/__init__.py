"""The commands that read a log: log-format and classify."""
