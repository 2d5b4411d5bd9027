"""Rules about disks: full, forecasts, quotas, errors."""
