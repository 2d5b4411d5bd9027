"""Receipts of trainmon-run: what they tell of an attempt, and which of them belong to it. Pure."""

from __future__ import annotations

from trainmon.analysis.attempts.receipts.ends import RECEIPT, applied, end_of, evidence, is_as_good
from trainmon.analysis.attempts.receipts.owners import NEAR, SURELY_NEAR, of_attempt, of_run, with_receipts
from trainmon.analysis.attempts.receipts.read import read
from trainmon.analysis.attempts.receipts.tails import TAIL, is_awaited, tail_file, tail_to_read

__all__ = [
    "NEAR", "RECEIPT", "SURELY_NEAR", "TAIL", "applied", "end_of", "evidence", "is_as_good", "is_awaited", "of_attempt",
    "of_run", "read", "tail_file", "tail_to_read", "with_receipts",
]  # fmt: skip
