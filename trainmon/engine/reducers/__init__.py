"""Reducers: State + event → State. Pure."""

from __future__ import annotations

from trainmon.engine.reducers.reduce import reduce

__all__ = ["reduce"]
