"""Which hosts are connected to, what each one reads, and which pollers run beside them."""
