"""Actions on runs, jobs and nodes: planned, executed, verified."""
