"""Watches what the config names with the sources of the daemon and the dashboard, until each has answered or failed."""

from __future__ import annotations

import logging
import multiprocessing.pool
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from collectors.assignment import NAMED
from collectors.quota import QuotaQuery
from trainmon.analysis.nodes import has_read_gpus
from trainmon.cli.snapshot import StateWatcher, has_answered
from trainmon.cli.terminal import show_progress
from trainmon.config import Settings
from trainmon.lib import HostUnreachable, Seconds, TrainmonError
from trainmon.model import (
    AnyReading,
    DiskSample,
    DiskSamples,
    FileContent,
    Hello,
    LogChunk,
    Node,
    Receipts,
    Source,
    Spec,
    State,
    SwitchSample,
    SwitchSamples,
    WandbRows,
)
from trainmon.runtime.monitor import Monitor
from trainmon.transport.shell import AskUser

log = logging.getLogger(__name__)

# ---- the rows that a check tells -------------------------------------------------------------------------------------


Mark = Literal["ok", "bad", "note"]


class Row(NamedTuple):
    """What was checked, the result, and for ✗ how to fix it."""

    mark: Mark
    subject: str
    what: str
    text: str
    fix: str = ""


def facts(subject: str, *found: tuple[Mark, str, str | None, str]) -> Iterator[Row]:
    """The rows of one subject. Where the text is empty, there is nothing to tell."""
    yield from (Row(mark, subject, what, text, fix) for mark, what, text, fix in found if text)


def reported(subject: str, what: str, rows: Iterable[Row], fix: str = "") -> Iterator[Row]:
    """The rows. A failure ends them with a row of its own, and with this fix if it has no hint. So does a bug: the
    other checks go on."""
    try:
        yield from rows
    except TrainmonError as error:
        yield Row("bad", subject, what, error.message, error.hint or fix)
    except Exception as error:
        log.exception("checking %s failed", subject)
        why = f"{type(error).__name__}: {error}"
        yield Row("bad", subject, what, why, "this is a bug in trainmon-tui; see its log")


def in_parallel(checks: Sequence[tuple[Row, Iterable[Row]]], at_once: int, timeout: Seconds) -> Iterator[list[Row]]:
    """The rows of each check, in this order; before each the row that stands for it when it does not end. They run on a
    few daemon threads, so that one that hangs does not delay the end: nothing waits longer than `timeout` for the next
    result."""
    with multiprocessing.pool.ThreadPool(max(1, min(at_once, len(checks)))) as pool:  # its threads are daemons
        done: list[Any] = [pool.apply_async(list, (reported(late.subject, late.what, rows),)) for late, rows in checks]
        for (late, _), rows in zip(checks, done, strict=True):
            try:
                yield rows.get(timeout)
            except multiprocessing.TimeoutError:
                yield [late]
                timeout = 0.0  # what hangs is waited for once


# ---- what the probe of a host has reported ---------------------------------------------------------------------------

Readings = dict[tuple[type, str], Any]
"""The parts of readings, by what they are about."""


def keep(known: Readings, reading: AnyReading) -> None:
    """Keep the newest disks and switches, and the first without an error of the files: the next ones may have only what
    is new."""
    match reading:
        case DiskSamples(d=parts) | SwitchSamples(s=parts):
            known.update({(type(part), part.path): part for part in parts})
        case LogChunk(id=name) | FileContent(id=name) | WandbRows(id=name) | Receipts(directory=name):
            before = known.get((type(reading), name))
            if before is None or before.error is not None:
                known[type(reading), name] = reading
        case Hello():
            known[Hello, ""] = reading


def has_all(known: Readings, spec: Spec, node: Node | None) -> bool:
    """Whether everything in the spec was reported, and the numbers of the node. A probe without Python reads disks
    only."""
    hello = known.get((Hello, ""))
    if hello is None or node is None or node.host_at is None or not has_read_gpus(node):
        return False
    names: dict[type, Sequence[str]] = {DiskSample: spec.disks}
    if hello.python is not None:
        names |= {kind: [one.id for one in getattr(spec, field)] for kind, field in NAMED.items()}
        names |= {SwitchSample: spec.switches, Receipts: spec.receipts}
    return known.keys() >= {(kind, name) for kind, ones in names.items() for name in ones}


# ---- the sources -----------------------------------------------------------------------------------------------------

PROBE_TIMEOUT: Seconds = 20.0
"""From the first reading of a host to the last one that is waited for: a mount that hangs is reported after seconds."""

TIMEOUT: Seconds = 600.0
"""Each source has its own time limits. This one is for a source that hangs nevertheless, and for a person's login."""

LATE = f"no answer within {TIMEOUT:g}s"


def without_du(settings: Settings) -> Settings:
    """The config without the quotas that are read by du: it reads a whole tree, for up to hours."""
    disks = (replace(one, quota=None) if one.quota and one.quota.parser == "du" else one for one in settings.disks)
    return replace(settings, disks=tuple(disks))


class Watch:
    """The sources of the config while they are checked. `ask` puts the prompts of logins to a person; None: nobody is
    there."""

    def __init__(self, settings: Settings, ask: AskUser | None = None, ssh_config: Path | None = None) -> None:
        self.settings, self.ask, self.ssh_config = settings, ask, ssh_config
        self.monitor = Monitor(
            without_du(settings), keeps=False, records=False, ssh_config=ssh_config, ask=ask, on_reading=self._read
        )
        self.sources = self.monitor.supervisor
        self.readings: dict[str, Readings] = {}
        """By host: what its probe has reported, from its first reading on."""
        self.hung: set[QuotaQuery] = set()
        """Those that are not waited for on each host: they run one after the other."""
        self._since: dict[str, Seconds] = {}
        self.wait_for = StateWatcher(self.monitor.subscribe).wait_for

    def _read(self, host: str, reading: AnyReading) -> None:
        self._since.setdefault(host, time.monotonic())
        keep(self.readings.setdefault(host, {}), reading)

    def answers(self, name: str, *, may_be_off: bool = True) -> Source:
        """A source once it has answered or failed, or is off if it may be."""

        def has_come(state: State) -> bool:
            source = state.sources.get(name)
            return source is not None and has_answered(state, source) and (may_be_off or source.phase != "off")

        has_answer = self.wait_for(has_come, TIMEOUT)
        late = Source(name=name, kind="files", cluster="", error=LATE)
        return self.monitor.engine.state.sources[name] if has_answer else late

    def reach(self, host: str, specs: Mapping[str, Spec]) -> TrainmonError | None:
        """Wait until a host has reported all that is in its spec, or will not: why it is not read. `specs`: of all
        hosts that are checked together."""

        def has_come(state: State) -> bool:
            done = [one for one, spec in specs.items() if self._is_done(one, spec, state.nodes.get(one))]
            show_progress(f"{len(done)} of {len(specs)} hosts" if len(done) < len(specs) else "")
            return host in done

        self.wait_for(has_come, TIMEOUT)
        late = None if host in self.readings else HostUnreachable(host, LATE, hint=f"try: ssh {host}")
        return self.sources.nodes[host].failure or late

    def _is_done(self, host: str, spec: Spec, known: Node | None) -> bool:
        node = self.sources.nodes[host]
        if not node.is_up or host not in self.readings:
            return node.failure is not None or node.is_off
        return has_all(self.readings[host], spec, known) or time.monotonic() - self._since[host] > PROBE_TIMEOUT
