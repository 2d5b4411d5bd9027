"""An executor, its ledger, and a host that answers what a test says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.lab.sshd import until
from tests.trainmon.actions.cluster import ANA, ask
from trainmon.actions.execution.executor import Executor
from trainmon.lib import SystemClock, TrainmonError
from trainmon.model import Action, ActionChanged, Event, Plan, Record, State
from trainmon.slurm import commands
from trainmon.transport.shell import Completed, LocalShell

JOB = (
    "JobId=91 ArrayJobId=88 ArrayTaskId=3 JobName=llm UserId=ana(1000) GroupId=ana(1000) MCS_label=N/A Priority=10 "
    "Nice=0 Account=a QOS=normal JobState={state} Reason=None Dependency=(null) Requeue=1 Restarts={restarts} "
    "BatchFlag=1 Reboot=0 ExitCode=0:0 RunTime=02:00:00 TimeLimit=04:00:00 SubmitTime=2026-11-21T09:30:00 "
    "StartTime=2026-11-21T10:00:00 EndTime=2026-11-21T14:00:00 Partition=gpu NodeList=n[1-2] NumNodes=2 "
    "ExcNodeList={excluded} Command=/fsx/train.slurm WorkDir=/fsx/work StdErr={out} StdIn=/dev/null "
    "StdOut={out}\n"
)


def job(*, word: str = "RUNNING", restarts: int = 0, excluded: str = "(null)", out: str = "/fsx/llm.out") -> bytes:
    return JOB.format(state=word, restarts=restarts, excluded=excluded, out=out).encode()


class Host:
    """A login host: Slurm's commands answer from a table, all others really run here."""

    host = "login"
    prompted = False

    def __init__(self, local: LocalShell) -> None:
        self._local = local
        self.answers: dict[tuple[str, ...], Completed | Callable[[], Completed]] = {
            commands.queue(): Completed(0, b"", b""),
            commands.show_job("88_3"): Completed(0, job(), b""),
        }
        self.ran: list[tuple[str, ...]] = []

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float) -> Completed:
        words = tuple(argv)
        if words[0] == "env":
            words = words[next(i for i, word in enumerate(words) if word.startswith("SLURM_BITSTR_LEN")) + 1 :]
        elif words[:2] == ("bash", "-lc"):
            words = ("bash -lc", *words[4:])
        elif words[0] in ("sh", "tail"):
            return self._local.run(argv, stdin=stdin, timeout=timeout)
        self.ran.append(words)
        answer = self.answers.get(words, Completed(0, b"", b""))
        return answer if isinstance(answer, Completed) else answer()

    def stream(self, argv: Sequence[str], sink: Any) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to close."""


class Book:
    """A ledger that remembers in which order it was written to, and can be stuck."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.texts: list[tuple[str, ...]] = []
        self.error: Exception | None = None

    def write(self, record: Record) -> None:
        if self.error is not None:
            raise self.error
        self.records.append(record)

    def write_text(self, action_id: str, kind: str, host: str, path: str, text: str) -> None:
        self.texts.append((action_id, kind, host, path, text))

    def evaluations(self, runs: Sequence[str]) -> Callable[[], dict[str, Record]]:
        return dict


class World:
    """A performer and all that it holds on to."""

    def __init__(self, local: LocalShell, known: State) -> None:
        self.host, self.book, self.state = Host(local), Book(), known
        self.events: list[Event] = []
        self.hurried: list[str] = []
        self.unreachable: TrainmonError | None = None
        self.performer = self.made()

    def made(self, **fields: Any) -> Executor:
        plain = {"ledger": self.book, "poll_soon": self.hurried.append, "clock": SystemClock(), "actor": ANA}
        return Executor(self.shell_of, lambda: self.state, self.events.append, **plain | fields)

    def shell_of(self, host: str) -> Host:
        if self.unreachable is not None:
            raise self.unreachable
        assert host == "login"
        return self.host

    def plan(self, verb: Any, *subjects: str, seconds: float = 12.0, **fields: Any) -> Plan:
        plans: list[Plan] = []
        self.performer.prepare(ask(verb, *subjects, **fields), plans.append)
        until(lambda: plans, "the plan has come", seconds)
        return plans[0]

    def act(self, *actions: Action) -> Record:
        """What becomes of the last one."""
        self.performer.act(actions)
        until(lambda: all(self.record(action).status != "asked" for action in actions), "all is told")
        return self.record(actions[-1])

    def record(self, action: Action) -> Record:
        found = [event.record for event in self.events if isinstance(event, ActionChanged)]
        return [record for record in found if record.action.id == action.id][-1]
