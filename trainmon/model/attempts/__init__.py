"""Attempts of a run, why each one ended, and when another one is worth it."""
