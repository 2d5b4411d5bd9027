"""Each look at the State: what is wrong, what of it is told, and what must be written down before it is."""
