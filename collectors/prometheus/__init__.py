"""Prometheus as a source: the numbers of exporters become the readings of nodes."""
