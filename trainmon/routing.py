"""Which changes of alerts are told, to whom, and why. Pure."""
