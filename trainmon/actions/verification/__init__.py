"""Verification of actions: every new State is checked for their effect. Pure."""

from __future__ import annotations

from trainmon.actions.verification.effects import STARTS
from trainmon.actions.verification.observation import CLOCK_TOLERANCE, COMMIT_AT_LEAST, COMMIT_SAVES, Observation
from trainmon.actions.verification.verify import followed_directories, verify_record

__all__ = [
    "CLOCK_TOLERANCE",
    "COMMIT_AT_LEAST",
    "COMMIT_SAVES",
    "STARTS",
    "Observation",
    "followed_directories",
    "verify_record",
]
