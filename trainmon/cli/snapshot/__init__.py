"""`trainmon-tui snapshot`: one reading of everything."""
