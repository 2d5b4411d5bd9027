"""The values of the demo: inventory, metrics, effects and W&B runs."""
