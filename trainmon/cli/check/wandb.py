"""Checks W&B: the key and its user, and whether the projects and W&B runs of the config exist."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

from collectors.wandb.child_process import ChildClient, WandbClient, WandbError
from collectors.wandb.login import Credentials, find_credentials
from collectors.wandb.wire import ListRuns, ReadViewer, RunList, Viewer
from trainmon.analysis.wandb import active_run, client_file
from trainmon.cli.check.output import Row
from trainmon.lib import clean, counted, duration, size
from trainmon.model import RunSpec, WandbDirectory, WandbRows, WandbRun, WandbSpec

SHOWN = 5
"""Runs and teams that are listed by name."""

COMMON = ("key", "unauthorized", "busy", "server", "unreachable", "slow", "gone")
"""Failures that the next request would meet, too."""


def check_wandb(
    runs: Sequence[RunSpec],
    login: Callable[[], Credentials] = find_credentials,
    client: Callable[[], WandbClient] = ChildClient,
) -> list[Row]:
    """The rows of W&B; none when no run names a project. Nothing is started then."""
    watched = [(run, run.wandb) for run in runs if run.wandb is not None]
    if not watched:
        return []
    found = login()
    if found.location is None:
        return [Row("bad", "W&B", "key", found.error, found.hint)]
    rows = [Row("ok", "W&B", "key", f"in {found.location}, for {found.server}")]
    with contextlib.closing(client()) as connection:
        rows += _query(connection, found, watched)
    return rows


def _query(connection: WandbClient, login: Credentials, watched: Sequence[tuple[RunSpec, WandbSpec]]) -> Iterator[Row]:
    try:
        viewer = connection.query(ReadViewer(id=0), Viewer)
        teams = [team for team in viewer.teams if team != viewer.user]
        more = f" and {len(teams) - SHOWN} more" if len(teams) > SHOWN else ""
        of = f", of {', '.join(teams[:SHOWN])}{more}" if teams else ""
        yield Row("ok", "W&B", "server", f"{login.server} answers {viewer.user or 'a service account'}{of}")
        for run, spec in watched:
            try:
                runs = connection.query(ListRuns(id=0, spec=spec), RunList).runs
            except WandbError as failure:
                if failure.kind in COMMON:
                    raise
                yield _failed(f"run {run.name}", failure, login)
            else:
                yield _run(run, spec, runs, time.time())
    except WandbError as failure:
        yield _failed("server", failure, login)


def _failed(what: str, failure: WandbError, login: Credentials) -> Row:
    return Row(
        "bad", "W&B", what, failure.message, failure.hint or f"try: curl -I {login.url}; is WANDB_BASE_URL right?"
    )


def _run(run: RunSpec, spec: WandbSpec, runs: tuple[WandbRun, ...], now: float) -> Row:
    """The row of one run, judged as in the dashboard."""
    what = f"run {run.name}"
    group = active_run.read(spec, runs, None, now, stopped=False)
    if not runs:
        fix = "if its W&B run has started, fix group, run, display or tags; otherwise it is found when it starts"
        return Row("note", "W&B", what, f"{spec.project} exists; {group.why}", fix)
    active = [one for one in runs if one.id in group.active]
    if len(active) > 1:
        return Row("note", "W&B", what, group.why, "end all but one, or add a [[run]] for each")
    if active:
        beat = active[0].heartbeat_at
        heartbeat = f", heartbeat {duration(max(0.0, now - beat))} ago" if beat is not None else ""
        return Row("ok", "W&B", what, f"{spec.description}: {group.why}{heartbeat}")
    text = f"{spec.description}: none is active; {group.why}"
    return Row("note" if group.phase == "overdue" else "ok", "W&B", what, text)


def client_file_row(host: str, wanted: WandbDirectory, found: WandbRows | None) -> Row:
    """What was found in the directory of a W&B client. Before the first run it may not exist."""
    where, what = wanted.directory, f"W&B files of {wanted.id}"
    if found is None:
        return Row("bad", host, what, f"{where} does not answer", "its file server may be down")
    if found.error is not None or found.path is None:
        why = clean(found.error or f"{where}: no file")
        fix = f"start the run {wanted.id}, or fix its `wandb_dir` in the config: the directory `wandb` of its client"
        return Row("bad" if found.path else "note", host, what, why, fix)
    rows = f"{counted(found.rows, 'row')} in the first {size(found.offset)} of {size(found.size)}"
    damaged = f", {counted(found.damaged, 'damaged part')} skipped" if found.damaged else ""
    is_old = found.mtime is not None and found.t - found.mtime >= client_file.QUIET
    cut = ", ends in an incomplete record" if found.tail and is_old else ""
    curves = f", {counted(len(client_file.points_of(found)), 'curve')}"
    return Row("ok", host, what, clean(f"{found.path}: {rows}{curves}{damaged}{cut}"))
