"""The demo's trainers: step lines, checkpoints, switches."""
