"""`trainmon-tui check`: tests the config, SSH, every collector and every channel."""
