"""The senses: bytes in, events out."""
