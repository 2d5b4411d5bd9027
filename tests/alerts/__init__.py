"""The daemon as it runs for months: against real hosts, real receivers, and everything that may happen to it."""
