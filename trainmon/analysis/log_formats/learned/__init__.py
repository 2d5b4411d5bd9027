"""Learned formats: reads the step lines of a trainer that no built-in format knows, by their shape. Pure."""

from __future__ import annotations

from trainmon.analysis.log_formats.learned.learn import learn, learn_from_bar

__all__ = ["learn", "learn_from_bar"]
