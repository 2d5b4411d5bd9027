"""One module per trainer whose lines are known. Pure."""
