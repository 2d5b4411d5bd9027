"""trainmon.engine.reducers."""

from __future__ import annotations

from trainmon.engine.reducers.jobs import state_of
from trainmon.engine.reducers.reduce import fold

__all__ = ["fold", "state_of"]
