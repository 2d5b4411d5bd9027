"""Verification of actions: every new State is checked for their effect. Pure."""
