"""Rules about GPUs: heat, slowdowns, faults, Xids and use."""
