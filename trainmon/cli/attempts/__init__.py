"""The commands about attempts: attempts and explain (history.py), sql."""
