"""trainmon.actions.verification."""

from __future__ import annotations

from trainmon.actions.verification.observed import CLOCKS, COMMIT_AT_LEAST, COMMIT_SAVES

__all__ = ["CLOCKS", "COMMIT_AT_LEAST", "COMMIT_SAVES"]
