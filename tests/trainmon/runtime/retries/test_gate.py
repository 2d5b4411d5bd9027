"""Whether the trainer may write its checkpoints on a node, all nodes at once, and what is not asked at all."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.alerting.rules.node_scene import SPEC, Scene, job, slurm
from trainmon.alerting.manager import AlertManager
from trainmon.alerting.pipeline.routing import Routing
from trainmon.alerting.rules import RULES
from trainmon.engine.engine import Engine
from trainmon.lib import CommandFailed, HostUnreachable, SystemClock
from trainmon.model import NodeCheck, RunSpec
from trainmon.runtime.retries import check_nodes
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import LocalShell, LocalStream, Sink

EVERY = tuple(rule() for rule in RULES)

AS_NOBODY = () if os.getuid() else ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
"""Root may write everywhere."""

ME = pwd.getpwuid(os.getuid() or 65534).pw_name


class Nobody(LocalShell):
    """A node on which we are an ordinary user."""

    def stream(self, argv: Sequence[str], sink: Sink) -> LocalStream:
        return super().stream((*AS_NOBODY, *argv), sink)


@pytest.fixture
def shell() -> Iterator[Nobody]:
    loop = EventLoop()
    loop.start()
    made = Nobody(loop)
    yield made
    made.close()
    loop.stop()


def engine(*nodes: str, spec: RunSpec = SPEC, user: str = ME) -> Engine:
    """It has just evaluated its rules. `user`: whose the job of the run is."""
    made = Engine(SystemClock())
    state = Scene(*nodes).runs(job(user=user)).state
    runs = {"llm": replace(state.runs["llm"], spec=spec)}
    made.state = replace(state, runs=runs, evaluated_at=float("inf"))
    return made


def directory_checks(
    of: Engine, shell: LocalShell | Mapping[str, LocalShell], *nodes: str, asked: Any = None
) -> list[NodeCheck]:
    shells = shell if isinstance(shell, Mapping) else dict.fromkeys(nodes or ("n1",), shell)
    known = {} if asked is None else asked
    found = check_nodes(of, AlertManager(EVERY, Routing(), None), shells.__getitem__, known, "llm", tuple(shells))
    return [one for one in found if one.check == "checkpoints"]


def test_what_may_not_be_done_with_the_directory_is_a_fault(tmp_path: Path, shell: Nobody) -> None:
    for parent in (tmp_path, *list(tmp_path.parents)[:-2]):
        parent.chmod(0o755)
    for name, mode, expected in (
        ("open", 0o777, ("passed", "")),
        ("read-only", 0o555, ("fault", "{} may not be written")),
        ("closed", 0o000, ("fault", "{} may not be read, may not be written, may not be searched")),
    ):
        path = tmp_path / name
        path.mkdir(mode=0o700)
        path.chmod(mode)
        (one,) = directory_checks(engine("n1", spec=replace(SPEC, checkpoints=str(path))), shell)
        assert (one.outcome, one.why) == (expected[0], expected[1].format(path))
        assert list(tmp_path.iterdir()).count(path) == 1
        path.chmod(0o700)
        assert list(path.iterdir()) == []  # nothing is written


def test_a_directory_that_is_missing_is_a_fault_only_if_another_node_has_it(tmp_path: Path, shell: Nobody) -> None:
    """Else the nodes may know it by another path than the login host: the run would never start again."""

    class Unmounted(Nobody):
        def stream(self, argv: Sequence[str], sink: Sink) -> LocalStream:
            return super().stream((*argv[:4], "/nowhere", *argv[5:]), sink)

    path = tmp_path / "ckpt's $(id)"
    for parent in (tmp_path, *list(tmp_path.parents)[:-2]):
        parent.chmod(0o755)
    path.mkdir()
    path.chmod(0o777)
    of = engine("n1", "n2", spec=replace(SPEC, checkpoints=str(path)))
    lost = Unmounted(shell._loop)
    for other, outcome in ((shell, "passed"), (lost, "not checked")):
        first, second = directory_checks(of, {"n1": lost, "n2": other})
        assert (first.outcome, first.why) == ("fault" if other is shell else outcome, f"{path} does not exist")
        assert second.outcome == outcome


def test_what_a_login_script_prints_is_no_fault_and_a_shell_that_fails_is_no_pass(
    tmp_path: Path, shell: Nobody
) -> None:
    class Chatty(Nobody):
        before = "printf 'Welcome, disk may not be read'"

        def stream(self, argv: Sequence[str], sink: Sink) -> LocalStream:
            return super().stream(("sh", "-c", f'{self.before}; exec "$@"', "sh", *argv), sink)

    class Broken(Chatty):
        before = "echo no home; exit 1"

    spec = replace(SPEC, checkpoints=f"{tmp_path}")
    for parent in (tmp_path, *list(tmp_path.parents)[:-2]):
        parent.chmod(0o755)
    tmp_path.chmod(0o777)
    (one,) = directory_checks(engine("n1", spec=spec), Chatty(shell._loop))
    assert (one.outcome, one.why) == ("passed", "")
    (one,) = directory_checks(engine("n1", spec=spec), Broken(shell._loop))
    assert (one.outcome, one.why) == ("not checked", f"{tmp_path} was not tested: sh ended with 1")


class Hanging(LocalShell):
    """Starts commands that do not return before the mount does."""

    def __init__(self) -> None:
        """It needs no event loop."""
        self.waiting: list[Sink] = []

    def stream(self, argv: Sequence[str], sink: Sink) -> Any:
        self.waiting.append(sink)
        return self

    def finish(self) -> None:
        """Of the stream."""


def test_all_nodes_are_asked_at_once_and_one_that_hangs_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainmon.runtime.retries.TIMEOUT", 0.2)
    names, asked = tuple(f"gpu-{number:03}" for number in range(64)), dict[Any, Any]()
    shell, of = Hanging(), engine(*names, spec=replace(SPEC, checkpoints="/fsx"))
    for _ in range(3):
        found = directory_checks(of, shell, *names, asked=asked)
        assert [one.node for one in found] == list(names)
        assert {(one.outcome, one.why) for one in found} == {
            ("not checked", "/fsx has not answered for 0.2s or longer"),
        }  # fmt: skip
        assert len(shell.waiting) == 64  # each would leave a process on its node
    for sink in shell.waiting:  # the mount is back: what was asked returns, and is asked anew
        sink.ended(0, None)
    assert len(shell.waiting) == 64
    assert {one.outcome for one in directory_checks(of, shell, *names, asked=asked)} == {"not checked"}
    assert len(shell.waiting) == 128


def test_a_connection_that_is_lost_is_no_answer_and_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lost(Hanging):
        def stream(self, argv: Sequence[str], sink: Sink) -> Any:
            sink.ended(None, HostUnreachable("n1", "n1: connection lost"))
            return super().stream(argv, sink)

    class Refused(Hanging):
        def stream(self, argv: Sequence[str], sink: Sink) -> Any:
            self.waiting.append(sink)
            raise CommandFailed("n1 refused a session")

    class Ended(Hanging):
        """sshd ends the session with the job."""

        def stream(self, argv: Sequence[str], sink: Sink) -> Any:
            sink.ended(None, None)
            return super().stream(argv, sink)

    asked, of = dict[Any, Any](), engine("n1", spec=replace(SPEC, checkpoints="/fsx"))
    for shell, why in (
        (Lost(), "connection lost"),
        (Refused(), "n1 refused a session"),
        (Ended(), "/fsx was not tested: sh ended with no status"),
    ):
        for count in (1, 2):
            (one,) = directory_checks(of, shell, asked=asked)
            assert (one.outcome, one.why, len(shell.waiting)) == ("not checked", why, count)


def test_no_node_is_asked_that_slurm_does_not_use_and_only_the_user_of_the_job_is_judged(
    tmp_path: Path, shell: Nobody
) -> None:
    """Another user, such as root, may do other things there."""
    spec = replace(SPEC, checkpoints=str(tmp_path))
    drained = engine("n1", spec=spec)
    drained.state = replace(drained.state, scheduler_nodes={"n1": slurm("n1", "IDLE", "DRAIN")})
    assert directory_checks(drained, shell) == []
    (one,) = directory_checks(engine("n1", spec=spec, user="ben"), shell)
    assert (one.outcome, one.why) == ("not checked", f"{tmp_path} can only be tested by the user of the job")
