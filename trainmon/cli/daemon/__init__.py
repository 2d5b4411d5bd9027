"""`--alerts-only`, `--once`, and the service files that start them."""
