"""Whether the trainer may write its checkpoints on a node, all nodes at once, and what is not asked at all."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.trainmon.alerting.rules.node_scene import SPEC, Scene, slurm
from trainmon.alerting.manager import AlertManager
from trainmon.alerting.pipeline.routing import Routing
from trainmon.alerting.rules import RULES
from trainmon.engine.engine import Engine
from trainmon.lib import CommandFailed, SystemClock
from trainmon.model import Checkpoint, Checkpoints, Cluster, NodeCheck, RunSpec
from trainmon.runtime.retries.gate import check_nodes
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import Completed, LocalShell

EVERY = tuple(rule() for rule in RULES)

AS_NOBODY = () if os.getuid() else ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
"""Root may write everywhere."""


class Nobody(LocalShell):
    """A node on which we are an ordinary user."""

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float) -> Completed:
        return super().run((*AS_NOBODY, *argv), stdin=stdin, timeout=timeout)


@pytest.fixture
def shell() -> Iterator[Nobody]:
    loop = EventLoop()
    loop.start()
    made = Nobody(loop)
    yield made
    made.close()
    loop.stop()


def engine(*nodes: str, spec: RunSpec = SPEC, is_saved: bool = True) -> Engine:
    """It has just evaluated its rules; `is_saved`: the run has a checkpoint."""
    made, path = Engine(SystemClock()), spec.checkpoints or ""
    state = Scene(*nodes).runs().state
    saved = (Checkpoint(step=40, state="committed", path=f"{path}/40", layout="megatron"),) if is_saved else ()
    listed = Checkpoints(path=path, host="n1", listed_at=0.0, list=saved)
    runs = {"llm": replace(state.runs["llm"], spec=spec, checkpoints=listed)}
    clusters = {"prod": Cluster(name="prod", login="login", me="ana")}
    made.state = replace(state, runs=runs, clusters=clusters, evaluated_at=float("inf"))
    return made


def directory_checks(of: Engine, shell: LocalShell, *nodes: str) -> list[NodeCheck]:
    found = check_nodes(of, AlertManager(EVERY, Routing(), None), lambda node: shell, "llm", nodes or ("n1",))
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


def test_a_directory_that_is_missing_is_a_fault_only_where_a_checkpoint_is_known(tmp_path: Path, shell: Nobody) -> None:
    spec = replace(SPEC, checkpoints=f"{tmp_path}/ckpt's $(id)")
    for is_saved, outcome in ((True, "fault"), (False, "not checked")):
        (one,) = directory_checks(engine("n1", spec=spec, is_saved=is_saved), shell)
        assert (one.outcome, one.why) == (outcome, f"{spec.checkpoints} does not exist")


def test_what_a_login_script_prints_is_no_fault_and_a_shell_that_fails_is_no_pass(
    tmp_path: Path, shell: Nobody
) -> None:
    class Chatty(LocalShell):
        before = "printf 'Welcome, disk may not be read'"

        def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float) -> Completed:
            return shell.run(("sh", "-c", f'{self.before}; exec "$@"', "sh", *argv), stdin=stdin, timeout=timeout)

        def __init__(self) -> None:
            """It uses the other one."""

    class Broken(Chatty):
        before = "echo no home; exit 1"

    spec = replace(SPEC, checkpoints=f"{tmp_path}")
    for parent in (tmp_path, *list(tmp_path.parents)[:-2]):
        parent.chmod(0o755)
    tmp_path.chmod(0o777)
    (one,) = directory_checks(engine("n1", spec=spec), Chatty())
    assert (one.outcome, one.why) == ("passed", "")
    (one,) = directory_checks(engine("n1", spec=spec), Broken())
    assert (one.outcome, one.why) == ("not checked", f"{tmp_path} was not tested: sh ended with 1")


def test_all_nodes_are_asked_at_once_and_one_that_hangs_is_not_checked() -> None:
    names = tuple(f"gpu-{number:03}" for number in range(64))
    all_are_asked = threading.Barrier(64)

    class Hanging(LocalShell):
        def __init__(self) -> None:
            """It needs no event loop."""

        def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float) -> Completed:
            all_are_asked.wait(60.0)
            raise CommandFailed(f"no answer in {timeout:g}s")

    found = directory_checks(engine(*names, spec=replace(SPEC, checkpoints="/fsx")), Hanging(), *names)
    assert [one.node for one in found] == list(names)
    assert {(one.outcome, one.why) for one in found} == {("not checked", "no answer in 8s")}


def test_no_node_is_asked_that_slurm_does_not_use_or_for_another_user_s_job(tmp_path: Path, shell: Nobody) -> None:
    spec = replace(SPEC, checkpoints=str(tmp_path))
    drained = engine("n1", spec=spec)
    drained.state = replace(drained.state, scheduler_nodes={"n1": slurm("n1", "IDLE", "DRAIN")})
    assert directory_checks(drained, shell) == []
    assert directory_checks(engine("n1", spec=replace(spec, user="ben")), shell) == []
    assert len(directory_checks(engine("n1", spec=replace(spec, user="ana")), shell)) == 1
