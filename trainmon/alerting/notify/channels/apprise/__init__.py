"""Channels of the apprise library, run in a child process."""
