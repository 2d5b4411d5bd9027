"""The wiring of a running program: monitor, alert service, standby, channels, log file, systemd."""
