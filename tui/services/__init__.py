"""What the dashboard does besides drawing: actions, toasts, palette."""
