"""Reads disk quotas."""
