"""The face: states in, events out."""
