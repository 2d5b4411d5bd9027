"""Findings over time become alerts. Pure."""
