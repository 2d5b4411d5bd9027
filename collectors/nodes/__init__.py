"""One connection a node: the probe's lines become events."""
