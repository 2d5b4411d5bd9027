"""Charts of W&B metrics and plots of the last hour, as lines of spans. Pure."""
