"""attempts, sql."""
