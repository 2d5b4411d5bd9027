"""Whether the clock has jumped, or this program has slept, and what of the past is then believed. Pure."""
