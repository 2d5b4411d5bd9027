"""What the demo is made of: nodes, trainers, metrics, effects."""
