"""SSH by paramiko: the effective config, host keys, login, channels."""
