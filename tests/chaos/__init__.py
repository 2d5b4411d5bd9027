"""Real processes that watch and tell, killed at seeded points: whatever is killed when, every alert arrives."""
