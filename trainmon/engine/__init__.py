"""The engine thread, the history of numbers, and the JSON snapshot of a State."""
