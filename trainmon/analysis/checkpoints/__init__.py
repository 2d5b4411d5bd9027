"""Checkpoints: layouts, states, and what a trainer resumes from. Pure."""

from __future__ import annotations

from trainmon.analysis.checkpoints.resume import NONE_FOUND

__all__ = ["NONE_FOUND"]
