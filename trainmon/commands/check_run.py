"""All hosts of the settings, looked at side by side, and told in the order of the config."""

from __future__ import annotations

import logging
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from collectors.dialling import Dialling, here
from collectors.placement import place
from collectors.supervisor import plan
from trainmon.clock import Seconds
from trainmon.commands.ask import ask_on_terminal
from trainmon.commands.check_host import Row, Wanted, check_host
from trainmon.config import ClusterSettings, Settings, run_specs
from trainmon.reader import Reader
from trainmon.shell import Local, Shell

log = logging.getLogger(__name__)

HOST_AT_MOST: Seconds = 600.0
"""Every step to a host has its own limit; this one ends the wait if a step has none after all."""

Told = Callable[[int, Sequence[str]], None]
Job = tuple[Wanted, Callable[[], Shell], bool]


def look_at_all(
    settings: Settings, *, is_person_there: bool, progress: Told, ssh_config: Path | None = None
) -> Iterator[list[Row]]:
    """The rows of each host, in the order of the config."""
    reader = Reader()
    reader.start()
    dials: list[Dialling] = []
    try:
        for cluster in settings.clusters:
            dialling = Dialling(reader, cluster.connect, ask_on_terminal if is_person_there else None, ssh_config)
            dials.append(dialling)
            jobs = list(_jobs(settings, cluster, dialling, reader, ssh_config))
            yield from _side_by_side(jobs, cluster.connect.at_once, progress)
    finally:
        for dialling in dials:
            dialling.close()
        reader.stop()


def _jobs(
    settings: Settings, cluster: ClusterSettings, dialling: Dialling, reader: Reader, ssh_config: Path | None
) -> Iterator[Job]:
    watched = plan(settings, cluster, run_specs(settings))
    specs = place(watched, watched.hosts)
    first = watched.hosts[0] if watched.hosts else None
    kept = [run.checkpoints for run in watched.runs if run.checkpoints]
    shared = tuple(dict.fromkeys((*watched.shared_disks, *kept)))
    named = {*(cluster.nodes or ()), cluster.login}
    for host in watched.hosts:
        is_here = host == here() and host not in named
        readable = shared if host == first else ()
        python = sys.executable if is_here else cluster.python
        wanted = Wanted(host, cluster.name, python, specs[host], readable, ssh_config)
        dial = partial(Local, reader) if is_here else partial(dialling.dial, host)
        yield wanted, dial, is_here


def _side_by_side(jobs: Sequence[Job], at_once: int, progress: Told) -> Iterator[list[Row]]:
    """Run the jobs on a few threads, which are daemonic: one that hangs does not hold up the end."""
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, list[Row]]] = queue.SimpleQueue()
    for number in range(len(jobs)):
        todo.put(number)
    for number in range(min(at_once, len(jobs))):
        threading.Thread(target=_work, args=(jobs, todo, done), name=f"check {number}", daemon=True).start()
    hosts = [wanted.host for wanted, _, _ in jobs]
    ready: dict[int, list[Row]] = {}
    told = 0
    for count in range(1, len(jobs) + 1):
        try:
            number, rows = done.get(timeout=HOST_AT_MOST)
        except queue.Empty:
            break
        progress(count, hosts)
        ready[number] = rows
        while told in ready:
            yield ready.pop(told)
            told += 1
    for number in range(told, len(jobs)):
        late = [Row("bad", hosts[number], "check", f"not done after {HOST_AT_MOST:g} s", f"try: ssh {hosts[number]}")]
        yield ready.get(number, late)


def _work(jobs: Sequence[Job], todo: queue.SimpleQueue[int], done: queue.SimpleQueue[tuple[int, list[Row]]]) -> None:
    while True:
        try:
            number = todo.get_nowait()
        except queue.Empty:
            return
        wanted, dial, is_here = jobs[number]
        rows: list[Row] = []
        try:
            rows += check_host(wanted, dial, is_here=is_here)
        except Exception as error:  # a fault of ours is one row: the other hosts are still told
            log.exception("checking %s failed", wanted.host)
            why = f"{type(error).__name__}: {error}"
            rows.append(Row("bad", wanted.host, "check", why, "a fault of trainmon-tui: its log says more"))
        done.put((number, rows))
