"""Prometheus as a source."""
