"""How a node is reached: over SSH, by a step of a job of ours, or by whichever works."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest

from collectors.connections import ClusterConnections
from collectors.nodes.steps import StepShell
from tests.collectors.nodes.hosts import FakeShell
from trainmon.config import ClusterSettings, ConnectSettings
from trainmon.lib import HostKeyRefused, HostUnreachable, LoginRefused
from trainmon.model import JobPart
from trainmon.slurm.client import Client
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import Shell


class Ssh:
    """Answers each dial with an error, or with a shell."""

    def __init__(self, error: HostUnreachable | None) -> None:
        self.dials = 0
        self.on_dial: Callable[[], None] = lambda: None
        self._error = error

    def dial(self, host: str) -> Shell:
        self.dials += 1
        self.on_dial()
        if self._error is not None:
            raise self._error
        return FakeShell()

    def close(self) -> None:
        """Nothing is held."""


def reached(
    by: Literal["ssh", "srun", "auto"], error: HostUnreachable | None, jobs: dict[str, int]
) -> tuple[ClusterConnections, Ssh]:
    cluster = ClusterSettings(name="lab", login="login1", nodes=None, connect=ConnectSettings(by=by))
    client = Client(FakeShell())
    connections = ClusterConnections(
        cluster,
        EventLoop(),
        None,
        None,
        client_of=lambda: client,
        part_of=lambda _, host: JobPart(jobs[host]) if host in jobs else None,
    )
    ssh = Ssh(error)
    connections.ssh = ssh  # type: ignore[assignment]
    return connections, ssh


def refusal() -> LoginRefused:
    return LoginRefused("gpu-1", "every login was refused")


def test_a_node_that_refuses_ssh_is_reached_by_a_step_until_the_next_job() -> None:
    jobs = {"gpu-1": 7}
    connections, ssh = reached("auto", refusal(), jobs)
    dial = connections.dialler("gpu-1", is_node=True)
    for _ in range(3):
        assert isinstance(dial(), StepShell)
    assert ssh.dials == 1  # repeated refusals lock accounts
    jobs["gpu-1"] = 8
    assert isinstance(dial(), StepShell)
    assert ssh.dials == 2


def test_a_job_that_the_queue_shows_while_ssh_is_refused_gives_a_step() -> None:
    jobs: dict[str, int] = {}
    connections, ssh = reached("auto", refusal(), jobs)
    ssh.on_dial = lambda: jobs.update({"gpu-1": 7})
    assert isinstance(connections.dialler("gpu-1", is_node=True)(), StepShell)


def test_a_node_that_accepts_ssh_is_reached_over_ssh() -> None:
    connections, _ = reached("auto", None, {"gpu-1": 7})
    assert isinstance(connections.dialler("gpu-1", is_node=True)(), FakeShell)


@pytest.mark.parametrize(
    ("error", "jobs"),
    [(refusal(), {}), (HostKeyRefused("gpu-1", "the host key has changed"), {"gpu-1": 7})],
)
def test_without_a_job_and_with_a_wrong_host_key_the_error_of_ssh_stays(
    error: HostUnreachable, jobs: dict[str, int]
) -> None:
    connections, _ = reached("auto", error, jobs)
    with pytest.raises(HostUnreachable) as caught:
        connections.dialler("gpu-1", is_node=True)()
    assert caught.value is error


def test_only_nodes_are_reached_by_a_step() -> None:
    connections, ssh = reached("srun", None, {"gpu-1": 7, "login1": 7})
    assert isinstance(connections.dialler("gpu-1", is_node=True)(), StepShell)
    assert ssh.dials == 0
    for host in ("login1", "files1"):
        assert isinstance(connections.dialler(host, is_node=host == "login1")(), FakeShell)
    assert not connections.needs_step("login1", is_node=True)
