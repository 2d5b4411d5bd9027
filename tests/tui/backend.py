"""A backend without an engine: a test says what is published, and reads what was asked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from trainmon.analysis.explanation import AttemptRecords, Report
from trainmon.analysis.explanation import report as report_on
from trainmon.analysis.log_formats import LogReport, report
from trainmon.engine.history import Curves
from trainmon.lib import Seconds
from trainmon.model import (
    Action,
    ActionRequest,
    Attempt,
    Curve,
    Job,
    LookReply,
    NodeEvent,
    Plan,
    Run,
    Series,
    Silence,
    State,
)
from tui.backend import LogSource


class FakeBackend:
    """Keeps what the dashboard asked for, in words."""

    def __init__(self, state: State | None = None) -> None:
        self.state = state
        self.requests: list[tuple[object, ...]] = []
        self.replies: list[tuple[ActionRequest, Callable[[Plan], None]]] = []
        """Who waits for a Plan: a test answers when it likes."""
        self.acted: list[Action] = []
        self.viewed: list[str] = []
        """The nodes whose screen is open, once per request."""
        self.plan: Callable[[ActionRequest], Plan] | None = None
        """When set, every Ask is answered at once with what it makes."""
        self.stored: dict[str, tuple[Attempt, AttemptRecords]] = {}
        """What the ledger has of attempts."""
        self.node_events: Sequence[NodeEvent] = ()
        self.curves = Curves()
        """The engine's own."""
        self.on_screen: tuple[tuple[str, ...], tuple[str, ...]] = (), ()
        """The runs and metrics whose charts are shown."""
        self.saving: list[Callable[[str], None]] = []
        """Who waits for samples: a test answers when it likes."""
        self.looking: list[Callable[[LookReply], object]] = []
        """Who waits for looks at ranks."""
        self.ssh: dict[str, tuple[str, ...]] = {}
        """The commands that log in to nodes."""
        self.texts: dict[str, Sequence[str]] = {}
        """The texts of every job."""
        self.log_source: Callable[[Run], LogSource] | None = None
        """What reads whole logs."""
        self._sinks: list[Callable[[State], None]] = []

    def publish(self, state: State) -> None:
        self.state = state
        for sink in list(self._sinks):
            sink(state)

    def subscribe(self, sink: Callable[[State], None]) -> Callable[[], None]:
        self._sinks.append(sink)
        if self.state is not None:
            sink(self.state)
        return lambda: self._sinks.remove(sink)

    def history(self, subject: str, metric: str, span: Seconds) -> Series:
        offsets = tuple(float(at) for at in range(-int(span), 1, 60))
        return Series(offsets, tuple(60.0 + (-at // 60) % 5 for at in offsets))

    def read_log(self, run: Run) -> LogReport:
        return report(run.log.lines if run.log else (), progress=run.progress, shape=run.memory.shape)

    def open_log(self, run: Run) -> LogSource | None:
        return None if self.log_source is None else self.log_source(run)

    def refresh(self) -> None:
        self.requests.append(("refresh",))

    def load_config(self) -> bool:
        self.requests.append(("load config",))
        return True

    def login(self, source: str) -> None:
        self.requests.append(("login", source))

    def answer(self, prompt: int, answers: tuple[str, ...] | None) -> None:
        self.requests.append(("answer", prompt, answers))

    def prepare(self, ask: ActionRequest, reply: Callable[[Plan], None]) -> None:
        self.requests.append(("prepare", ask.verb, ask.subjects))
        self.replies.append((ask, reply))
        if self.plan is not None:
            reply(self.plan(ask))

    def act(self, actions: Sequence[Action]) -> None:
        self.acted += actions

    def ssh_command(self, node: str) -> tuple[str, ...] | str:
        return self.ssh.get(node, f"{node} accepts nobody")

    def play(self, order: str) -> None:
        self.requests.append(("play", order))

    def poll_job(self, key: str) -> None:
        self.requests.append(("look at job", key))

    def read_job(self, job: Job, reply: Callable[[str, Sequence[str]], object]) -> None:
        self.requests.append(("read job", job.key))
        for title, lines in self.texts.items():
            reply(title, lines)

    def view_node(self, node: str) -> None:
        self.viewed.append(node)

    def curve(self, path: str, key: str, epoch: int = 0, start: int = 0) -> Curve:
        return self.curves.read(path, key, epoch, start)

    def show_curves(self, runs: Collection[str], metrics: Sequence[str]) -> None:
        self.on_screen = tuple(runs), tuple(metrics)

    def save_samples(self, run: str, directory: str, reply: Callable[[str], object]) -> None:
        self.requests.append(("save samples", run, directory))
        self.saving.append(reply)

    def look(self, run: str, reply: Callable[[LookReply], object]) -> None:
        self.requests.append(("look", run))
        self.looking.append(reply)

    def read_attempt(self, attempt: str, reply: Callable[[Attempt, AttemptRecords], object]) -> None:
        self.requests.append(("read attempt", attempt))
        if attempt in self.stored:
            reply(*self.stored[attempt])

    def read_node_events(self, node: str, reply: Callable[[Sequence[NodeEvent]], object]) -> None:
        self.requests.append(("read node events", node))
        reply([one for one in self.node_events if one.node == node])

    def read_report(self, run: str | None, reply: Callable[[Report], object]) -> None:
        assert self.state is not None
        self.requests.append(("read report", run))
        reply(report_on(self.state.attempts.values(), 0.0, self.state.at, {}, run=run))

    def acknowledge(self, alert: str, why: str = "") -> None:
        self.requests.append(("acknowledge", alert, why))

    def mute(self, silence: Silence) -> None:
        self.requests.append(("mute", silence))

    def unmute(self, silence: str) -> None:
        self.requests.append(("unmute", silence))
