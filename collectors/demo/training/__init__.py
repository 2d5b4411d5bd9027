"""The demo's training loops: log lines and checkpoints."""
