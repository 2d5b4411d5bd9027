"""A Slurm that answers from memory, and a poller without its thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from collectors.slurm.collector import Poller, Watched
from trainmon.lib import CommandFailed, HostUnreachable, Seconds, TrainmonError
from trainmon.model import (
    Cluster,
    ClustersChanged,
    Event,
    Job,
    JobChanged,
    JobsListed,
    Source,
    SourceChanged,
)
from trainmon.slurm.client import ON_A_LINE, Client
from trainmon.slurm.commands import QUEUE
from trainmon.transport.shell import Completed, Sink, Stream


class FakeClock:
    def __init__(self) -> None:
        self.at = 1_000.0

    def now(self) -> float:
        return 1_760_000_000.0 + self.at

    def monotonic(self) -> float:
        return self.at


class FakeSlurm:
    """A scheduler that answers what the test says, and keeps what it was asked."""

    host = "login1"
    prompted = False

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.me = "ana"
        self.jobs: dict[str, dict[str, str]] = {}
        self.requests: list[tuple[str, ...]] = []
        self.trouble: dict[str, Completed | TrainmonError] = {}
        """What commands answer instead, by their name."""
        self.asked: list[list[str]] = []
        """The jobs of each request for details."""
        self.hidden: set[str] = set()
        """Jobs that have gone since the queue was listed."""
        self.accounts = "slurmdbd"
        self.ended: str = ""
        self.takes = self.detail_takes = 0.0
        self._numbers = count(88)

    def submit(self, **fields: str) -> str:
        own = fields.pop("id", str(next(self._numbers)))
        self.jobs[own] = {
            "i": own,
            "A": own.partition("_")[0],
            "T": "RUNNING",
            "N": "gpu-1",
            "S": "2026-03-02T08:00:00",
            **fields,
        }
        return own

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: Seconds) -> Completed:
        if argv[0] == "bash":  # a login that knows no more
            return Completed(0, b"\n\n\n", b"")
        words = list(argv[next(i for i, word in enumerate(argv) if word.startswith("SLURM_BITSTR_LEN")) + 1 :])
        words = words[len(ON_A_LINE) :] if words[0] == "sh" else words
        self.requests.append(tuple(words))
        found = self.trouble.get(words[0])
        if isinstance(found, TrainmonError):
            raise found
        return found or self._details(stdin, timeout) or Completed(0, self._answer(words).encode(), b"")

    def _details(self, stdin: bytes, timeout: Seconds) -> Completed | None:
        """What scontrol prints that reads its commands, with its prompts."""
        if not stdin:
            return None
        numbers = [line.split()[-1] for line in stdin.decode().splitlines()]
        self.asked.append(numbers)
        if self.detail_takes * len(numbers) > timeout:
            self.clock.at += timeout
            raise CommandFailed(f"login1: env did not end in {timeout:g}s")
        self.clock.at += self.detail_takes * len(numbers)
        known = {job["A"]: job for job in self.jobs.values() if job["i"] not in self.hidden}
        text = "".join(
            f"scontrol: show job {number}\n" + (f"{self._shown(known[number])}\n" if number in known else "")
            for number in numbers
        )
        gone = b"" if known.keys() >= set(numbers) else b"slurm_load_jobs error: Invalid job id specified\n"
        return Completed(1 if gone else 0, f"{text}scontrol: \n".encode(), gone)

    def _answer(self, words: list[str]) -> str:
        match words[0]:
            case "id":
                return f"{self.me}\n" if words[1:] == ["-un"] else "kim\n"
            case "squeue":
                self.clock.at += self.takes
                return "".join(self._row(job) for job in self.jobs.values())
            case "sinfo":
                return "|1#gpu-1|1#idle|1#Unknown|1#Unknown|1#gpu:8|1#h100|1#none\n"
            case "sacct":
                return self.ended
            case "scontrol" if words[1:3] == ["show", "config"]:
                storage = f"AccountingStorageType = accounting_storage/{self.accounts}\n"
                return f"{storage}SlurmUser = slurm(1)\nSLURM_VERSION = 23.02.7\n"
            case "sacctmgr":
                return "Operator\n"
        raise AssertionError(words)

    @staticmethod
    def _row(job: dict[str, str]) -> str:
        values = {
            "F": job["A"],
            "K": "N/A",
            "u": "ana",
            "P": "h100",
            "V": "2026-03-02T07:00:00",
            "j": "run",
            "Q": "1",
            **job,
        }
        return "".join(f"|1#{values.get(letter, '')}" for letter in QUEUE) + "\n"

    @staticmethod
    def _shown(job: dict[str, str]) -> str:
        user = job.get("u", "ana")
        submitted = f"SubmitTime={job['shown_at']} " if "shown_at" in job else ""
        return (
            f"JobId={job['A']} JobName=run UserId={user}(1) GroupId={user}(1) MCS_label=N/A Priority=1 "
            f"JobState={job['T']} {submitted}"
            f"Reason=None Requeue=1 Restarts={job.get('restarts', '0')} BatchFlag=1 ExitCode=0:0 "
            "Command=/t.sh WorkDir=/fsx StdErr=/fsx/o StdIn=/dev/null StdOut=/fsx/%j.out \n"
        )

    def count(self, *words: str) -> int:
        return sum(requested[: len(words)] == words for requested in self.requests)

    def stream(self, argv: Sequence[str], sink: Sink) -> Stream:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is held."""


class Polled:
    """A poller on a fake clock, and everything that it said."""

    def __init__(
        self, *, unwatched_since: Callable[[], float | None] = lambda: float("inf"), **watched: object
    ) -> None:
        self.clock = FakeClock()
        self.slurm = FakeSlurm(self.clock)
        self.events: list[Event] = []
        self.seen: list[tuple[tuple[Job, ...], str]] = []
        self.unreachable: HostUnreachable | None = None
        settings = {"cluster": "prod", "login": "login1", **watched}
        self.poller = Poller(
            Watched(**settings),  # type: ignore[arg-type]
            self._client,
            self.events.append,
            self.clock,
            lambda jobs, me: self.seen.append((jobs, me)),
            unwatched_since,
        )

    def _client(self) -> Client:
        if self.unreachable is not None:
            raise self.unreachable
        return Client(self.slurm)

    def look(self) -> Polled:
        """Wait until the next look is due, and look."""
        self.clock.at += self.poller.step()
        self.events.clear()
        self.slurm.requests.clear()
        self.poller.step()
        return self

    def first(self) -> Polled:
        self.poller.step()
        return self

    def pass_by(self, seconds: float) -> None:
        """Let time pass as the poller's thread would: it is stepped whenever it is due."""
        end = self.clock.at + seconds
        while self.clock.at < end:
            self.clock.at = min(end, self.clock.at + max(0.1, self.poller.step()))

    @property
    def jobs(self) -> tuple[Job, ...]:
        return next(event.jobs for event in reversed(self.events) if isinstance(event, JobsListed))

    @property
    def looks(self) -> int:
        return sum(isinstance(event, JobsListed) for event in self.events)

    @property
    def changed(self) -> list[Job]:
        return [event.job for event in self.events if isinstance(event, JobChanged)]

    @property
    def source(self) -> Source:
        return next(event.source for event in reversed(self.events) if isinstance(event, SourceChanged))

    @property
    def cluster(self) -> Cluster:
        return next(event.clusters[0] for event in reversed(self.events) if isinstance(event, ClustersChanged))
