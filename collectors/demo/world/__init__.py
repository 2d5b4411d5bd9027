"""The demo's cluster as time passes."""
