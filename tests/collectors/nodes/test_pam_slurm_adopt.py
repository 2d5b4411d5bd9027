"""Nodes that let people in for a running job alone: a real sshd, whose PAM says no as pam_slurm_adopt does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from collectors.nodes.collector import NONE_OF_OURS
from collectors.supervisor import JOB_ENDED
from tests.collectors.test_supervisor import Stage, job
from tests.lab.pam_slurm_adopt import DENIED, PamSlurmAdoptSshd
from trainmon.config import ClusterSettings, ConnectSettings, Settings
from trainmon.lib import HostUnreachable, SystemClock
from trainmon.model import Event, Hello, NodeReading
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.ssh.client import Dialer


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PamSlurmAdoptSshd]:
    with PamSlurmAdoptSshd.start(tmp_path_factory.mktemp("pam")) as running:
        yield running


def staged(sshd: PamSlurmAdoptSshd, nodes: tuple[str, ...] | None) -> Stage:
    cluster = ClusterSettings(name="prod", nodes=nodes, connect=ConnectSettings(timeout=60.0))
    return Stage(Settings(clusters=(cluster,)), sshd.ssh_config(2), SystemClock())


def is_hello(event: Event) -> bool:
    return isinstance(event, NodeReading) and event.node == "n0" and isinstance(event.reading, Hello)


def test_the_words_of_pam_reach_whoever_dials(sshd: PamSlurmAdoptSshd) -> None:
    reader = EventLoop()
    reader.start()
    dialer = Dialer(reader, config_file=sshd.ssh_config(1), timeout=60.0)
    try:
        with pytest.raises(HostUnreachable) as caught:
            dialer.dial("n0")
    finally:
        dialer.close()
        reader.stop()
    assert caught.value.message == f"n0 closed the connection during the login: {DENIED}"


@pytest.mark.parametrize(("nodes", "words"), [(("n0",), NONE_OF_OURS), (None, JOB_ENDED)])
def test_a_node_is_watched_for_as_long_as_our_job_runs_there(
    sshd: PamSlurmAdoptSshd, nodes: tuple[str, ...] | None, words: str
) -> None:
    stage = staged(sshd, nodes)
    stage.supervisor.start()
    try:
        seen = stage.queues["prod"].seen
        seen((), "root")
        if nodes is not None:
            assert stage.source("n0", "off").hint == NONE_OF_OURS
        sshd.job.touch()
        seen((job(1, "n0", user="root"),), "root")
        stage.wait_for(is_hello)
        assert stage.supervisor.shell_of("n0").run(["echo", "in"], timeout=60).stdout == b"in\n"
        sshd.end_job()
        lost = stage.source("n0", "retrying")
        assert lost.error is None
        stage.wait_for(lambda event: "poll_soon" in stage.queues["prod"].requests)
        seen((job(1, "n0", user="root", state="COMPLETED"),), "root")
        off = stage.source("n0", "off")
        assert (off.error, off.hint) == (None, words)
        faults = [event.source for event in stage.received if hasattr(event, "source") and event.source.error]
        assert faults == []
    finally:
        stage.supervisor.stop()
