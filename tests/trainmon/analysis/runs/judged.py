"""The verdict on a run as people read it."""

from __future__ import annotations

from typing import NamedTuple

from trainmon.analysis.runs import RunContext, status
from trainmon.model import Run


class Shown(NamedTuple):
    verdict: str
    why: str


def judge(run: Run, context: RunContext, now: float) -> Shown:
    judgement = status.judge(run, context, now)
    return Shown(judgement.verdict, judgement.why)
