"""Attempts of runs."""
