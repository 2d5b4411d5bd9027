"""Logging in: keys, agents, prompts."""
