"""Runs the commands of a plan and writes them to the ledger."""
