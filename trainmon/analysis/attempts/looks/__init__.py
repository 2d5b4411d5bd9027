"""What the sources of looks have answered → which ranks hold a run up. Pure.

A look names a rank only with proof. What differs for a moment in a run that goes on names nobody.
"""
