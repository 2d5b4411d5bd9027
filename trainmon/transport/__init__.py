"""Commands and streams on this machine or over SSH."""
