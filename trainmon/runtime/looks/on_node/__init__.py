"""Scripts that are sent to a node for one look: Python 3.6 or later, the standard library alone.

Each defines `look(asked)`, from JSON to JSON. `run.py` comes before it, and calls it.
"""
