"""What commands say of attempts that the ledger does not have: names that are like a mistyped one, and runs whose
attempts are not recorded now."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainmon.ledger.lease import LeaderNote, LeaderNow
    from trainmon.lib import Instant
    from trainmon.model import Attempt

CLOSE_AT_MOST = 4
RUNS_AT_MOST = 5


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean video or video-2b?`, or nothing."""
    close = difflib.get_close_matches(name, dict.fromkeys(known), n=CLOSE_AT_MOST, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def silent_lines(leader: LeaderNow | None, run: str | None, now: Instant) -> Iterator[str]:
    """A sentence for each source that does not answer, if attempts are not recorded because of that: of any run, or of
    this one."""
    from trainmon.lib import counted

    if leader is None or not leader.is_held:
        return
    for name, runs in leader.note.unrecorded.items():
        if run is None or run in runs:
            more = "" if len(runs) <= RUNS_AT_MOST else f" and {counted(len(runs) - RUNS_AT_MOST, 'other run')}"
            until = "it responds" if name.startswith("slurm:") else "it responds, or for a minute after the start"
            named = f"{', '.join(runs[:RUNS_AT_MOST])}{more}"
            yield f"{_silence(name, leader.note, now)}: attempts of {named} are not recorded until {until}"


def open_line(leader: LeaderNow | None, attempt: Attempt, now: Instant) -> str | None:
    """That the source of an attempt that has not ended does not answer: it may have ended since."""
    name = f"slurm:{attempt.cluster}" if attempt.job_id is not None else f"wandb:{attempt.run_id}"
    if leader is None or not leader.is_held or not attempt.is_open:
        return None
    is_silent = any(one.name == name and one.health in ("late", "down") for one in leader.note.sources)
    return f"{_silence(name, leader.note, now)}: whether this attempt still runs is not known" if is_silent else None


def _silence(name: str, note: LeaderNote, now: Instant) -> str:
    from trainmon.analysis.attempts import silence

    source = next((one for one in note.sources if one.name == name), None)
    return silence(name, None if source is None else source.answered_at, None if source is None else source.error, now)
