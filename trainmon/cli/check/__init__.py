"""`trainmon-tui check`: the config, SSH, every collector and every channel."""
