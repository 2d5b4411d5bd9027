"""What the daemon offers to Prometheus: the State as metrics, served at /metrics or written to a file. Nothing here is
imported unless the config asks for it."""
