"""trainmon-tui ranks: where the ranks of a run are, and which of them holds it up."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from queue import SimpleQueue

import click

from trainmon.analysis.attempts import place_of
from trainmon.analysis.attempts.looks import NAMES
from trainmon.analysis.runs import last_attempts
from trainmon.cli.snapshot import first_full_state
from trainmon.cli.terminal import print_json, print_lines, table
from trainmon.config import load_settings
from trainmon.engine.snapshot import VERSION, plain
from trainmon.lib import ConfigError, clean, counted, listed, ranges, spans_text
from trainmon.model import LookReply, RankLook, RankMap
from trainmon.runtime.backend import DashboardBackend
from trainmon.runtime.logs import log_to_file
from trainmon.runtime.monitor import Monitor

PLACES = ("NODE", "RANKS", "GPUS")


def print_ranks(run: str, config: Path | None, ssh_config: Path | None, as_json: bool, wait: float) -> int:
    """Read everything once, look at the ranks of one run, and print both; the exit status."""
    settings, _ = load_settings(config, ())
    log_to_file()
    with Monitor(settings, keeps=False, ssh_config=ssh_config) as monitor:
        state = first_full_state(monitor, wait)
        if run not in state.runs:
            hint = f"one of: {listed(sorted(state.runs), 8)}" if state.runs else "trainmon-tui check"
            raise ConfigError([f"{clean(run)} is not a run that is watched"], hint=hint)
        return print_looks(monitor, run, as_json=as_json)


def print_looks(monitor: DashboardBackend, run: str, *, as_json: bool) -> int:
    """Look at the ranks of a run, and print where they are and what was seen; the exit status."""
    looks, state = made(monitor, run), monitor.engine.state
    attempt = last_attempts(state.attempts.values()).get(run)
    known = None if attempt is None else attempt.ranks
    if as_json:
        ranks = None if known is None else plain(known)
        found = [as_object(one, known) for one in looks]
        print_json({"version": VERSION, "at": state.at, "run": run, "ranks": ranks, "looks": found})
    else:
        print_lines(*map_lines(known), *(line for look in looks for line in look_lines(look)))
    return 1 if any(one.ranks for one in looks) else 0 if any(one.is_answer for one in looks) else 3


def made(monitor: DashboardBackend, run: str) -> list[RankLook]:
    """What each source shows. Progress goes to the standard error."""
    replies = SimpleQueue[LookReply]()
    monitor.look(run, replies.put)
    looks = list[RankLook]()
    while not (reply := replies.get()).is_done:
        if reply.look is not None:
            looks.append(reply.look)
        else:
            click.echo(reply.text, err=True)
    return looks


def map_lines(known: RankMap | None) -> list[str]:
    """The map of the ranks."""
    if known is None:
        return ["where its ranks run is not known"]
    rows = [
        (name or "several", *(spans_text(ranges(sorted(each))) for each in (own, {*chain(*own.values())})))
        for name, own in sorted(known.nodes.items(), key=lambda item: min(item[1]))
    ]
    return [f"{counted(known.ranks, 'rank')}, numbered by {known.launcher}", *table(PLACES, rows)]


def look_lines(look: RankLook) -> list[str]:
    """One look: what it shows, what to do, and its evidence."""
    head = f"{NAMES[look.source]}: {'' if look.is_answer else 'could not look: '}{clean(look.summary, 2_000)}"
    return ["", head, *([f"  → {look.advice}"] if look.advice else []), *(f"  {clean(one, 400)}" for one in look.lines)]


def as_object(look: RankLook, known: RankMap | None) -> dict[str, object]:
    """A look for JSON, with where the ranks are that it names."""
    named = [
        {"rank": rank, "node": place and place.node, "gpu": int(place.gpu) if place and place.gpu else None}
        for rank, place in ((rank, place_of(rank, known)) for rank in look.ranks)
    ]
    return {**plain(look), "named": named}
