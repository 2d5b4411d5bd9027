"""The wiring of a running program: monitor, alert service with its channels, standby, logs, systemd."""
