"""Learned formats: reads the step lines of a trainer that no built-in format knows, by their shape. Pure."""
