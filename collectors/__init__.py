"""Collectors: they read nodes, queues, quotas, W&B and daemons, and submit events."""
