"""The interface between the dashboard and the rest of the program: States come in, requests go out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Protocol

from trainmon.analysis.explanation import AttemptRecords, Report
from trainmon.analysis.log_formats import LogReport
from trainmon.lib import Instant, Seconds
from trainmon.model import (
    Action,
    ActionRequest,
    Attempt,
    Curve,
    Job,
    LogHits,
    LogPart,
    LookReply,
    NodeEvent,
    Plan,
    Run,
    Series,
    Silence,
    State,
)

NOT_YET = State()
"""The State before the first one."""


class LogSource(Protocol):
    """The whole log of a run, on its host. Every method returns at once; replies come on other threads."""

    def read(self, start: int, end: int, reply: Callable[[LogPart], object]) -> None:
        """Read the lines between two offsets, in bytes."""

    def above(self, lines: Sequence[str], near: int, reply: Callable[[LogPart], object]) -> None:
        """Read the lines around these, which are the first ones that are known: at about this offset, or before."""

    def find(self, at: Instant, step: int | None, evidence: Sequence[str], reply: Callable[[LogPart], object]) -> None:
        """Read the lines of a time, of a step or around the evidence of an alert."""

    def search(self, text: str, reply: Callable[[LogHits], object]) -> Callable[[], object]:
        """Find a text in all of it, from its end upwards. Replies several times; what is returned ends it."""

    def save(self, file: Path, reply: Callable[[str, bool], object]) -> Callable[[], object]:
        """Write all of it into a new file of this machine. Replies several times with a sentence, and whether it is the
        last one: how much is written, then where it is or what failed. What is returned ends it."""


class Backend(Protocol):
    """What the dashboard may request. Every method returns at once and raises nothing."""

    def subscribe(self, sink: Callable[[State], None]) -> Callable[[], None]:
        """Call sink with the current State and each new one, on another thread. Returns a function that stops it."""

    def history(self, subject: str, metric: str, span: Seconds) -> Series:
        """The last `span` seconds of a number. Subjects: `node/3` (GPU 3; temperature, memory, utilization, power)
        and a Disk.key (free_bytes, free_inodes). Memory is in MiB, power in W. Empty if unknown."""

    def read_log(self, run: Run) -> LogReport:
        """What is read in each of the last lines of a run's log, with the formats of the config."""

    def open_log(self, run: Run) -> LogSource | None:
        """The whole log of a run; None if nobody can read it."""

    def refresh(self) -> None:
        """Poll all sources now (rate-limited), and reconnect those that wait for their next try."""

    def load_config(self) -> bool:
        """Load the config again soon. False: there is none."""

    def login(self, source: str) -> None:
        """Log in again to a held source, such as `node:gpu-001`. Its questions become Prompts."""

    def answer(self, prompt: int, answers: tuple[str, ...] | None) -> None:
        """Answer a Prompt by its id; None declines it."""

    def prepare(self, request: ActionRequest, reply: Callable[[Plan], None]) -> None:
        """Make the Plan of an action within 10 s, and call reply with it on another thread. Nothing is done yet. What
        prevents the action becomes a Refusal in the Plan."""

    def act(self, actions: Sequence[Action]) -> None:
        """Run the actions of a Plan. Each is recorded, checked again and run; State.actions has its result."""

    def ssh_command(self, node: str) -> tuple[str, ...] | str:
        """The command that logs in to a node as this program does, or the sentence why there is none."""

    def play(self, order: str) -> None:
        """A request to a replay; see ReplayOrdered."""

    def poll_job(self, key: str) -> None:
        """Request what is on the screen: the details of a job, at most every few seconds, or, by the name of a cluster,
        its jobs that have ended, at most every few minutes."""

    def read_job(self, job: Job, reply: Callable[[str, Sequence[str]], object]) -> None:
        """Read the texts of a job: its priority, script and the end of its standard error. For each, reply is called
        on another thread with its title and its lines, or a sentence that says why there are none."""

    def view_node(self, node: str) -> None:
        """A node's screen is open: connect to it if it is not connected to all the time. Called every few seconds."""

    def curve(self, path: str, key: str, epoch: int = 0, start: int = 0) -> Curve:
        """One metric of one W&B run (`entity/project/id`) from point `start`; all points if `epoch` is not the current
        one. Empty if unknown."""

    def show_curves(self, runs: Collection[str], metrics: Sequence[str]) -> None:
        """The charts of these metrics of these runs are on the screen. W&B's server is asked for curves that are not
        read all the time."""

    def save_samples(self, run: str, directory: str, reply: Callable[[str], object]) -> None:
        """Fetch the newest media of a run into a directory of this machine. Calls reply on another thread with a
        sentence: where they are, or what failed."""

    def read_attempt(self, attempt: str, reply: Callable[[Attempt, AttemptRecords], object]) -> None:
        """Read from the ledger what is known around an attempt: its run's attempts, alerts and actions of its time.
        Calls reply on another thread, or never if the ledger does not have it."""

    def read_node_events(self, node: str, reply: Callable[[Sequence[NodeEvent]], object]) -> None:
        """Read from the ledger the alerts of 90 days that belong to the history of a node, the oldest first. Calls
        reply on another thread, or never without a ledger."""

    def look(self, run: str, reply: Callable[[LookReply], object]) -> None:
        """Look at the ranks of a run by these sources, one after the other. Replies several times on another thread;
        each look is also in Run.looks."""

    def read_report(self, run: str | None, reply: Callable[[Report], object]) -> None:
        """Report on the last 30 days of a run, or of all runs. Calls reply on another thread."""

    def acknowledge(self, alert: str, why: str = "") -> None:
        """Acknowledge an alert by its id: it is no longer repeated or escalated."""

    def mute(self, silence: Silence) -> None:
        """Add a silence. The backend fills in its id, its author and the time."""

    def unmute(self, silence: str) -> None:
        """Remove a silence by its id."""
