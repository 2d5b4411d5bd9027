"""The sign of life: what it says, and when. Pure."""
