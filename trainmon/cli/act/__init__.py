"""The commands that act: save, kill, requeue, cancel and the others; and the history of actions."""
