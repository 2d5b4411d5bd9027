"""What commands say of attempts that the ledger does not have: names that are like a mistyped one, and runs whose
attempts are not recorded now."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from pathlib import Path

CLOSE_AT_MOST = 4
RUNS_AT_MOST = 5


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean video or video-2b?`, or nothing."""
    close = difflib.get_close_matches(name, dict.fromkeys(known), n=CLOSE_AT_MOST, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def unrecorded_lines(directory: Path, now: float, run: str | None) -> Iterator[str]:
    """A sentence for each source that does not answer, if attempts are not recorded because of that: of any run, or of
    this one."""
    from trainmon.ledger.reader import leader_now
    from trainmon.lib import counted, duration

    leader = leader_now(directory, now)
    if leader is None or not leader.is_held:
        return
    for name, runs in leader.note.unrecorded.items():
        if run is not None and run not in runs:
            continue
        source = next((one for one in leader.note.sources if one.name == name), None)
        kind, _, cluster = name.partition(":")
        who = f"Slurm of {cluster}" if kind == "slurm" else f"W&B, for {cluster},"
        at, why = (None, None) if source is None else (source.answered_at, source.error)
        since = "yet" if at is None else f"for {duration(now - at)}"
        more = "" if len(runs) <= RUNS_AT_MOST else f" and {counted(len(runs) - RUNS_AT_MOST, 'other run')}"
        until = "until it answers" if kind == "slurm" else "until it answers, or for a minute after the start"
        reason = "" if why is None else f" ({why})"
        yield (
            f"{who} has not answered {since}{reason}: "
            f"attempts of {', '.join(runs[:RUNS_AT_MOST])}{more} are not recorded {until}"
        )
