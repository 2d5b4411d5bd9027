"""The alert pipeline: lifecycle, inhibition, flapping, silences, routing and grouping, each a pure function."""
