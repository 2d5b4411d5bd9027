"""The product against a real Slurm: its queue, its refusals and silences, and what our actions do to it."""
