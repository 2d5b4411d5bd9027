"""Implements Backend, which the dashboard and the other commands use, without collectors, and asks for logins."""

from __future__ import annotations

import contextlib
import getpass
import itertools
import logging
import os
import secrets
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import starmap
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Self

from msgspec.structs import replace

from collectors.connections import local_hostname
from trainmon.actions.execution.executor import Executor
from trainmon.actions.planning import Actor
from trainmon.alerting.manager import AlertManager
from trainmon.analysis import log_formats
from trainmon.analysis.attempts import with_stored
from trainmon.analysis.explanation import AttemptRecords, Report, report
from trainmon.analysis.retries import KEPT
from trainmon.engine.engine import Engine
from trainmon.ledger.alerts import read_node_events
from trainmon.ledger.attempts import read_around
from trainmon.ledger.ledger import Ledger, LedgerStuck, attempt_history
from trainmon.lib import DAY, Seconds, TrainmonError, scrub
from trainmon.model import (
    WANDB,
    Action,
    ActionRequest,
    AlertRequest,
    AlertRequested,
    Attempt,
    Curve,
    Job,
    Log,
    LookReply,
    LookSource,
    NodeEvent,
    NoticeGiven,
    Plan,
    Prompt,
    PromptsChanged,
    Refusal,
    ReplayOrdered,
    Run,
    Series,
    Silence,
    State,
)
from trainmon.runtime.dashboard_files import ConfigFile
from trainmon.runtime.log_file import LogFile
from trainmon.runtime.looks import SOURCES, Looks, Nodes, Source, Stacks
from trainmon.runtime.recording import Recorder
from trainmon.runtime.retries import check_nodes
from trainmon.slurm import commands, parse
from trainmon.slurm.client import Client
from trainmon.transport.files import read_range
from trainmon.transport.shell import Shell

log = logging.getLogger(__name__)

# ---- login prompts, one after the other ------------------------------------------------------------------------------

PATIENCE = 180.0
"""How many seconds a prompt waits for its answer; sshd's own LoginGraceTime is 120."""


class Prompts:
    """The open prompts. `ask` blocks its caller; answers are passed on and never kept."""

    def __init__(self, submit: Callable[[PromptsChanged], None], *, patience: Seconds = PATIENCE) -> None:
        self._submit = submit
        self._patience = patience
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._open: dict[int, tuple[Prompt, SimpleQueue[tuple[str, ...] | None]]] = {}
        self._closed = False

    def ask(
        self,
        host: str,
        title: str,
        instructions: str,
        fields: tuple[tuple[str, bool], ...],
        is_open: Callable[[], bool] = lambda: True,
    ) -> tuple[str, ...] | None:
        """Show a prompt and wait for its answers. None when it was declined, nobody answered in time, or the host no
        longer waits."""
        with self._turn:
            number, replies = next(self._numbers), SimpleQueue[tuple[str, ...] | None]()
            prompt = Prompt(id=number, host=host, title=title, instructions=instructions, fields=fields)
            with self._lock:
                if self._closed:
                    return None
                self._open[number] = (prompt, replies)
            self._publish()
            until = time.monotonic() + self._patience
            try:
                while is_open() and time.monotonic() < until:
                    with contextlib.suppress(Empty):
                        return replies.get(timeout=min(self._patience, 1.0))
                return None
            finally:
                with self._lock:
                    del self._open[number]
                self._publish()

    def answer(self, number: int, answers: tuple[str, ...] | None) -> None:
        """Answer one prompt; None declines it. A prompt that has timed out ignores it."""
        with self._lock:
            if number in self._open:
                self._open[number][1].put(answers)

    def close(self) -> None:
        """Decline the open prompts and all that follow."""
        with self._lock:
            self._closed = True
            for _, replies in self._open.values():
                replies.put(None)

    def _publish(self) -> None:
        with self._lock:
            prompts = tuple(prompt for prompt, _ in self._open.values())
        self._submit(PromptsChanged(prompts))


# ---- implements Backend, which the dashboard and the other commands use, without collectors --------------------------

REPORTED: Seconds = 30 * DAY
"""The period of a report."""

READ_LINES = 200
"""Lines of a log that are read again for a person who asks; 2,000 would take the dashboard half a second."""


class DashboardBackend:
    """An engine, its ledger and the executor of actions. Subclasses add what feeds the engine."""

    def __init__(self, engine: Engine, ledger: Ledger | None = None) -> None:
        self.engine = engine
        self._ledger = ledger
        self._executor: Executor | None = None
        self._shell_of: Callable[[str], Shell] | None = None
        self._looks: Looks | None = None
        self.prices: Mapping[str, float | None] = {}
        """Of a GPU hour, by cluster."""
        self.config_file: ConfigFile | None = None
        """What loads its config again, if it has one."""
        self._recorders: list[Recorder] = []

    def record(self, path: Path, *, is_ring: bool = False) -> None:
        """Record into a file, or the last minutes into a directory. To be called before the start."""

        def say(text: str) -> None:
            log.warning("%s", text)
            self.engine.submit(NoticeGiven("recording", text))

        recorder = Recorder(path, say, is_ring=is_ring)
        self._recorders.append(recorder)
        self.engine.takers.append(recorder.take)
        recorder.start()

    def start(self) -> None:
        self.engine.start()
        if self._ledger is not None:
            self._ledger.start()

    def stop(self) -> None:
        self.stop_actions()
        self.engine.stop()
        for recorder in self._recorders:
            recorder.stop()
        if self._ledger is not None:
            self._ledger.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop_actions(self) -> None:
        """Start no more actions; a running one has a moment to end before its connection is closed."""
        if self._executor is not None:
            self._executor.stop()
            self._executor = None

    def read_log(self, run: Run) -> log_formats.LogReport:
        log, known = run.log or Log(host=""), self.engine.formats
        return log_formats.report(
            log.lines[-READ_LINES:], known, partial=log.partial, progress=run.progress, shape=run.memory.shape
        )

    def open_log(self, run: Run) -> LogFile | None:
        return None if self._shell_of is None else LogFile(run, self._shell_of, self.engine.formats)

    def subscribe(self, sink: Callable[[State], None]) -> Callable[[], None]:
        return self.engine.subscribe(sink)

    def history(self, subject: str, metric: str, span: Seconds) -> Series:
        return self.engine.history(subject, metric, span)

    def curve(self, path: str, key: str, epoch: int = 0, start: int = 0) -> Curve:
        return self.engine.curve(path, key, epoch, start)

    def show_curves(self, runs: Collection[str], metrics: Sequence[str]) -> None:
        """There is no W&B collector."""

    def save_samples(self, run: str, directory: str, reply: Callable[[str], object]) -> None:
        """There is no W&B collector."""
        reply(f"{run} has no samples")

    def read_attempt(self, attempt: str, reply: Callable[[Attempt, AttemptRecords], object]) -> None:
        """Call `reply` on the ledger's thread."""

        def work(connection: sqlite3.Connection) -> None:
            found = read_around(connection, attempt)
            if found is not None:
                reply(*found)

        if self._ledger is not None:
            self._ledger.read(work, lambda: None)

    def read_node_events(self, node: str, reply: Callable[[Sequence[NodeEvent]], object]) -> None:
        """Call `reply` on the ledger's thread."""
        since = self.engine.state.at - KEPT
        if self._ledger is not None:
            self._ledger.read(lambda connection: reply(read_node_events(connection, since, node)), lambda: None)

    def read_report(self, run: str | None, reply: Callable[[Report], object]) -> None:
        """Read the ledger on a thread of its own: it takes seconds if it is large."""

        def work() -> None:
            state, known, missing = self.engine.state, self.engine.state.attempts, list[str]()
            try:
                known = known if self._ledger is None else with_stored(known, attempt_history(self._ledger.file.parent))
            except LedgerStuck as error:
                missing.append(f"{error}. Only the attempts of the last week are counted.")
            found = report(known.values(), state.at - REPORTED, state.at, self.prices, run=run)
            reply(found._replace(missing=(*missing, *found.missing)))

        threading.Thread(target=work, name="report", daemon=True).start()

    def read_job(self, job: Job, reply: Callable[[str, Sequence[str]], object]) -> None:
        """Read its texts on a thread of their own, over the connection that reads its run's log, or else its login
        host's."""
        if self._shell_of is not None:
            runs = self.engine.state.runs.values()
            hosts = [
                run.log.host for run in runs if job.key in run.jobs and run.log is not None and run.log.host != WANDB
            ]
            login = self.engine.state.clusters[job.cluster].login
            texts = job_texts(job, partial(self._shell_of, login), partial(self._shell_of, [*hosts, login][0]))
            threading.Thread(target=lambda: deque(starmap(reply, texts), 0), name="job", daemon=True).start()

    def refresh(self) -> None:
        """There are no collectors."""

    def load_config(self) -> bool:
        if self.config_file is not None:
            self.config_file.load_now()
        return self.config_file is not None

    def login(self, source: str) -> None:
        """There are no logins."""

    def answer(self, prompt: int, answers: tuple[str, ...] | None) -> None:
        """There are no prompts."""

    def prepare(self, request: ActionRequest, reply: Callable[[Plan], None]) -> None:
        """Read what the plan of an action needs, and call `reply` with the plan; see Executor."""
        if self._executor is not None:
            self._executor.prepare(request, reply)
            return
        refusals = tuple(Refusal(subject=name, why="no actions are possible here") for name in request.subjects)
        reply(Plan(request=request, refusals=refusals))

    def act(self, actions: Sequence[Action]) -> None:
        """Run the actions of a plan."""
        if self._executor is not None:
            self._executor.act(actions)

    def enable_actions(
        self, shell_of: Callable[[str], Shell], poll_soon: Callable[[str], None], alerting: AlertManager
    ) -> None:
        """Run actions from now on, over these connections. `poll_soon` polls the queue of a cluster. By the rules of
        `alerting`, nodes are checked before a run starts again."""
        self._shell_of = shell_of
        self._executor = Executor(
            shell_of,
            lambda: self.engine.state,
            self.engine.submit,
            ledger=self._ledger,
            poll_soon=poll_soon,
            clock=self.engine.clock,
            actor=Actor(who=who(), from_host=local_hostname()),
            read_only=self.engine.state.read_only,
        )
        self._executor.gate = partial(check_nodes, self.engine, alerting, shell_of, {})

    def enable_looks(self, nodes: Nodes, sources: Mapping[LookSource, Source] = SOURCES) -> None:
        """Look at the ranks of runs from now on, by what reads these nodes."""
        self._looks = Looks(lambda: self.engine.state, nodes, self.engine.submit, self.engine.clock, sources)
        if self._executor is not None:
            self._executor.stacks = Stacks(lambda: self.engine.state, nodes, self.engine.submit, self.engine.clock)

    def look(self, run: str, reply: Callable[[LookReply], object], sources: Sequence[LookSource] = ()) -> None:
        if self._looks is None:
            reply(LookReply("the ranks of this run cannot be looked at here", is_done=True))
        else:
            self._looks.ask(run, reply, sources)

    def play(self, order: str) -> None:
        self.engine.submit(ReplayOrdered(order))

    def poll_job(self, key: str) -> None:
        """There is no scheduler."""

    def view_node(self, node: str) -> None:
        """There are no connections."""

    def ssh_command(self, node: str) -> tuple[str, ...] | str:
        return f"{node} is simulated or recorded: there is nothing to log in to"

    # ---- requests about alerts ----

    def acknowledge(self, alert: str, why: str = "") -> None:
        self.submit_request(AlertRequest(verb="ack", at=self.engine.clock.now(), by=who(), alert=alert, why=why))

    def mute(self, silence: Silence) -> None:
        now = self.engine.clock.now()
        made = replace(silence, id=secrets.token_hex(4), by=who(), made_at=now)
        self.submit_request(AlertRequest(verb="mute", at=now, by=made.by, silence=made, why=made.why))

    def unmute(self, silence: str) -> None:
        self.submit_request(AlertRequest(verb="unmute", at=self.engine.clock.now(), by=who(), alert=silence))

    def submit_request(self, request: AlertRequest) -> None:
        """Submit a request to what evaluates the alerts: here, the engine."""
        self.engine.submit(AlertRequested(request))


# ---- the texts of a job ----------------------------------------------------------------------------------------------

SHOWN_BYTES, SCRIPT_LINES, STDERR_LINES = 64 * 1024, 300, 40
NO_SCRIPT = "Slurm does not show it: only the script of your own batch job, for as long as it knows the job."
NO_STDERR = "Slurm does not report where it is."


def job_texts(job: Job, slurm: Callable[[], Shell], files: Callable[[], Shell]) -> Iterator[tuple[str, Sequence[str]]]:
    """The title and the lines of each text of a job, or why there are none. `slurm`, `files`: where Slurm's commands
    run, and where logs are read."""
    number, path = str(job.number), job.stderr or ""
    texts: tuple[tuple[str, str, slice, bool, Callable[[], str]], ...] = (
        ("priority", "", slice(1), job.stage == "waiting",
         lambda: parse.read_priority(Client(slurm()).run(commands.priority(number)))),
        (f"stderr {path}", "It is empty." if path else NO_STDERR, slice(-STDERR_LINES, None), bool(path),
         lambda: read_range(files(), path, -SHOWN_BYTES).data.decode("utf-8", "replace")),
        ("script", NO_SCRIPT, slice(SCRIPT_LINES), True, lambda: Client(slurm()).run(commands.batch_script(number))),
    )  # fmt: skip
    for title, none, shown, is_known, read in texts:
        try:
            text = read() if is_known else ""
        except TrainmonError as error:  # of a priority there is only its number, without the plugin
            text = "" if title == "priority" or getattr(error, "kind", "") == "gone" else error.message
        yield title, [line.rpartition("\r")[2] for line in scrub(text or none).splitlines()[shown]]


def who() -> str:
    """The person at this machine, as far as it knows."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may be in no list
        return f"user {os.getuid()}"
