"""The dashboard: it shows States, and sends requests to its Backend."""
