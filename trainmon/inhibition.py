"""Which alert hides which: what follows from something worse is not told. Pure."""
