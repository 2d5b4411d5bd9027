"""`trainmon-tui init`: writes a config from what a login host says."""
