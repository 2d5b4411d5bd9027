"""Restarts: what requeues failed jobs without a person, and what checks the nodes before any restart."""
