"""Slurm's commands over a Shell: their environment, where they are found, what their failures become."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from trainmon.lib import CommandFailed, HostUnreachable, Seconds, TrainmonError
from trainmon.slurm.client import Client, SlurmFailed
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import Completed, LocalShell, Sink, Stream

Answer = Completed | TrainmonError


def printed(text: str) -> Completed:
    return Completed(0, text.encode(), b"")


def failed(status: int, stderr: str) -> Completed:
    return Completed(status, b"", stderr.encode())


class FakeShell:
    """A host that answers what the test says, and keeps what it was asked."""

    host = "login1"
    prompted = False

    def __init__(self, answer: Callable[[Sequence[str]], Answer]) -> None:
        self.requests: list[tuple[str, ...]] = []
        self._answer = answer

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: Seconds) -> Completed:
        self.requests.append(tuple(argv))
        answer = self._answer(argv)
        if isinstance(answer, TrainmonError):
            raise answer
        return answer

    def stream(self, argv: Sequence[str], sink: Sink) -> Stream:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LocalShell]:
    monkeypatch.setenv("HOME", str(tmp_path))  # whoever runs the tests may have a profile that hangs
    reader = EventLoop()
    reader.start()
    shell = LocalShell(reader)
    yield shell
    shell.close()
    reader.stop()


def test_the_logins_own_settings_change_no_answer(
    local: LocalShell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in {
        "SQUEUE_FORMAT": "%i", "SQUEUE_STATES": "PD", "SCANCEL_INTERACTIVE": "1", "SACCT_FORMAT": "jobid",
        "LC_ALL": "de_DE.UTF-8", "TZ": "Europe/Berlin", "SLURM_TIME_FORMAT": "relative", "SLURM_CONF": "/etc/kept.conf",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    found = dict(line.partition("=")[::2] for line in Client(local).run(["sh", "-c", "env"]).splitlines())
    assert found.keys().isdisjoint({"SQUEUE_FORMAT", "SQUEUE_STATES", "SCANCEL_INTERACTIVE", "SACCT_FORMAT"})
    assert (found["LC_ALL"], found["TZ"], found["SLURM_TIME_FORMAT"]) == ("C", "UTC", "standard")
    assert (found["SLURM_BITSTR_LEN"], found["SLURM_CONF"]) == ("0", "/etc/kept.conf")


def test_arguments_arrive_as_they_are(local: LocalShell) -> None:
    nasty = ["a'; echo foo", "a b", "-rf", "$(id)", '"', "*"]
    assert Client(local).run(["printf", "%s\n", *nasty]).splitlines() == nasty
    output = Client(local).run(["printf", "%s\n", *nasty], login_shell=True)
    assert output.splitlines()[-len(nasty) :] == nasty


def test_what_a_login_shell_runs_has_the_logins_own_environment() -> None:
    shell = FakeShell(lambda argv: printed("Submitted batch job 9\n"))
    assert Client(shell).run(["sbatch", "/t.sh"], login_shell=True) == "Submitted batch job 9\n"
    assert shell.requests == [("bash", "-lc", 'exec "$@"', "bash", "sbatch", "/t.sh")]


def test_commands_that_only_a_login_knows_are_looked_up_once() -> None:
    def answer(argv: Sequence[str]) -> Completed:
        if argv[0] == "bash":
            return printed("Welcome to the cluster\n\n/opt/slurm/bin/squeue\n/opt/slurm/etc/slurm.conf\n")
        if "squeue" in argv or "sinfo" in argv:
            return failed(127, f"env: '{argv[-1]}': No such file or directory")
        return printed("found")

    shell = FakeShell(answer)
    client = Client(shell)
    assert client.run(["squeue"]) == client.run(["sinfo"]) == client.run(["squeue"]) == "found"
    assert [request[-1] for request in shell.requests] == [
        "squeue", "squeue", "/opt/slurm/bin/squeue", "/opt/slurm/bin/sinfo", "/opt/slurm/bin/squeue",
    ]  # fmt: skip
    assert sum(request[0] == "bash" for request in shell.requests) == 1
    assert "SLURM_CONF=/opt/slurm/etc/slurm.conf" in shell.requests[-1]


def test_a_host_without_slurm_says_so_in_words() -> None:
    def answer(argv: Sequence[str]) -> Completed:
        return printed("\n\n\n") if argv[0] == "bash" else failed(127, "env: 'squeue': No such file or directory")

    client = Client(FakeShell(answer))
    for _ in range(2):
        with pytest.raises(SlurmFailed, match="there is no squeue on login1") as failure:
            client.run(["squeue"])
        assert failure.value.kind == "absent"


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (CommandFailed("login1: env did not end in 25s"), "silent", "login1: squeue did not end in 25s"),
        (HostUnreachable("login1", "login1 is gone"), "silent", "login1 is gone"),
        (
            failed(1, "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"),
            "silent",
            "login1: Unable to contact slurm controller (connect failure)",
        ),
        (failed(1, "slurm_load_jobs error: Invalid job id specified\n"), "gone", "login1: Invalid job id specified"),
        (failed(7, ""), "refused", "login1: squeue ended with status 7"),
    ],
)
def test_every_failure_is_a_sentence_and_a_kind(answer: Answer, kind: str, words: str) -> None:
    with pytest.raises(SlurmFailed) as failure:
        Client(FakeShell(lambda argv: answer)).run(["squeue"])
    assert (failure.value.kind, failure.value.message) == (kind, words)


def test_a_queue_without_a_user_whom_nobody_knows_is_not_believed() -> None:
    shell = FakeShell(lambda argv: Completed(0, b"", b"squeue: error: Invalid user: ghost\n\n"))
    with pytest.raises(SlurmFailed, match="Invalid user: ghost"):
        Client(shell).run(["squeue", "--user=ghost,ana"])


def test_numbers_of_users_become_names_where_somebody_knows_them(local: LocalShell) -> None:
    client = Client(local)
    assert client.user_name("0") == "root"
    assert client.user_name("4294967000") == "4294967000"
    assert client.me()


def test_a_greeting_of_the_login_is_not_our_name() -> None:
    shell = FakeShell(lambda argv: printed("Welcome to the cluster!\n\nana\n"))
    assert Client(shell).me() == "ana"
    assert Client(shell).user_name("1001") == "ana"


def test_text_of_the_login_without_a_line_feed_is_no_part_of_our_name(local: LocalShell, tmp_path: Path) -> None:
    class Printing:
        """A login whose script prints before each command."""

        host, prompted = "login1", False

        def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: Seconds) -> Completed:
            done = local.run(argv, stdin=stdin, timeout=timeout)
            return done._replace(stdout=b"Welcome to the cluster! " + done.stdout)

    assert Client(Printing()).me() == Client(local).me()  # type: ignore[arg-type]
