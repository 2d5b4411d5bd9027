"""The one thread that looks after all hosts, and what queues say of them."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collectors.connections import local_hostname
from collectors.discovery import VIEWED_FOR, watch_plan
from collectors.nodes.collector import NodeCollector
from collectors.slurm.collector import Watched
from collectors.supervisor import JOB_ENDED, KEEP_FOR, Supervisor
from trainmon.config import (
    ClusterSettings,
    ConnectSettings,
    DiskSettings,
    MetricsSettings,
    QuotaSettings,
    RunSettings,
    Settings,
    load_settings,
)
from trainmon.lib import Clock, HostUnreachable, SystemClock
from trainmon.model import (
    DisksForgotten,
    Event,
    Job,
    QuotaRead,
    RunsChanged,
    RunSpec,
    Source,
    SourceChanged,
    SourceRemoved,
)
from trainmon.slurm.client import Client


class FakeClock:
    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


class FakeQueue:
    """A poller whose scheduler is the test."""

    def __init__(
        self,
        watched: Watched,
        client_of: Callable[[], Client],
        submit: Callable[[Event], None],
        clock: Clock,
        seen: Callable[[tuple[Job, ...], str], None],
        unwatched_since: Callable[[], float | None],
    ) -> None:
        self.watched, self.client_of, self.submit, self.seen = watched, client_of, submit, seen
        self.requests: list[str] = []

    def start(self) -> None:
        self.requests.append("start")

    def stop(self) -> None:
        self.requests.append("stop")

    def poll_soon(self) -> None:
        self.requests.append("poll_soon")

    def refresh(self) -> None:
        self.requests.append("refresh")

    def poll_job(self, key: str) -> None:
        self.requests.append(key)


class Stage:
    """A supervisor whose queues are the test's."""

    def __init__(self, settings: Settings, ssh_config: Path, clock: Clock | None = None) -> None:
        self.ssh_config = ssh_config
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.received: list[Event] = []
        self.clock = FakeClock()
        self.queues: dict[str, FakeQueue] = {}
        self.supervisor = Supervisor(
            settings, self.events.put, ask=None, clock=clock or self.clock, ssh_config=ssh_config, make_queue=self.make
        )

    def make(self, watched: Watched, *parts: Any) -> FakeQueue:
        self.queues[watched.cluster] = FakeQueue(watched, *parts)
        return self.queues[watched.cluster]

    def wait_for(self, what: Callable[[Event], object]) -> Event:
        """The first event of a kind, those before it included."""
        deadline = time.monotonic() + 120
        while True:
            event = self.events.get(timeout=max(0.01, deadline - time.monotonic()))
            self.received.append(event)
            if what(event):
                return event

    def source(self, host: str, phase: str) -> Source:
        event = self.wait_for(lambda event: isinstance(event, SourceChanged) and is_at(event.source, host, phase))
        assert isinstance(event, SourceChanged)
        return event.source

    def sources(self, phase: str) -> Source:
        event = self.wait_for(lambda event: isinstance(event, SourceChanged) and event.source.phase == phase)
        assert isinstance(event, SourceChanged)
        return event.source

    def runs(self) -> tuple[RunSpec, ...]:
        event = self.wait_for(lambda event: isinstance(event, RunsChanged))
        assert isinstance(event, RunsChanged)
        return event.specs

    def hosts(self) -> set[str]:
        return set(self.supervisor.nodes)


def is_at(source: Source, host: str, phase: str) -> bool:
    return (source.name, source.phase) == (f"node:{host}", phase)


@contextlib.contextmanager
def staged(tmp_path: Path, settings: Settings) -> Iterator[Stage]:
    config = tmp_path / "ssh_config"
    config.write_text("Host *\n  HostName 127.0.0.1\n  Port 1\n")
    stage = Stage(settings, config)
    stage.supervisor.start()
    try:
        yield stage
    finally:
        stage.supervisor.stop()


def job(number: int, *nodes: str, state: str = "RUNNING", **observed: Any) -> Job:
    facts: dict[str, Any] = {"name": "llm", "user": "ana", "batch": True, "stdout": f"/fsx/{number}.out"}
    return Job(cluster="prod", id=str(number), number=number, state=state, nodes=nodes, **{**facts, **observed})


FOLLOWED = Settings(clusters=(ClusterSettings(name="prod", login="login1", nodes=None),))
NAMED = Settings(
    clusters=(ClusterSettings(name="prod", login="login1", nodes=("n1", "me@n2")),), runs=(RunSettings(name="llm"),)
)


def test_a_host_that_cannot_be_looked_after_does_not_keep_the_others_from_it(tmp_path: Path) -> None:
    config = tmp_path / "ssh_config"
    config.write_text("Host *\n  HostName 127.0.0.1\n  Port 1\n")
    settings, _ = load_settings(None, ("n1", "n2"))
    supervisor = Supervisor(settings, lambda event: None, ask=None, ssh_config=config)
    supervisor.start()
    again = threading.Semaphore(0)

    def broken() -> None:
        raise RuntimeError("can't start new thread")

    first, second = supervisor.nodes.values()
    replaced(first, broken)
    replaced(second, again.release)
    try:
        assert all(again.acquire(timeout=60) for _ in range(2))
    finally:
        supervisor.stop()


def replaced(watch: NodeCollector, tick: object) -> None:
    watch.tick = tick  # type: ignore[method-assign, assignment]


# ---- nodes that come and go with the jobs ----------------------------------------------------------------------------


def test_the_nodes_of_the_runs_jobs_are_watched_while_they_run(tmp_path: Path) -> None:
    with staged(tmp_path, FOLLOWED) as stage:
        assert stage.runs() == ()
        assert stage.hosts() == {"login1"}
        stage.queues["prod"].seen((job(1, "n1", "n2"), job(2, "n9", user="bob", name="bobs")), "ana")
        (run,) = stage.runs()
        assert (run.name, run.nodes, run.log) == ("llm", ("n1", "n2"), "/fsx/1.out")
        assert stage.hosts() == {"login1", "n1", "n2"}
        stage.source("n1", "connecting")
        stage.queues["prod"].seen((job(1, "n1", "n2", state="COMPLETING"),), "ana")
        off = [stage.sources("off"), stage.sources("off")]
        assert {(source.name, source.error, source.hint) for source in off} == {
            ("node:n1", None, JOB_ENDED),
            ("node:n2", None, JOB_ENDED),
        }
        stage.clock.at += KEEP_FOR - 1
        assert stage.hosts() == {"login1", "n1", "n2"}
        stage.clock.at += 2
        gone = {stage.wait_for(lambda event: isinstance(event, SourceRemoved)) for _ in range(2)}
        assert gone == {SourceRemoved("node:n1"), SourceRemoved("node:n2")}
        assert stage.hosts() == {"login1"}


def test_a_node_whose_next_job_begins_in_time_is_the_same_row(tmp_path: Path) -> None:
    with staged(tmp_path, FOLLOWED) as stage:
        seen = stage.queues["prod"].seen
        seen((job(1, "n1"),), "ana")
        stage.source("n1", "connecting")
        watch = stage.supervisor.nodes["n1"]
        seen((job(1, "n1", state="COMPLETED"), job(2, state="PENDING")), "ana")
        stage.source("n1", "off")
        stage.clock.at += KEEP_FOR / 2
        seen((job(2, "n1"),), "ana")
        stage.source("n1", "retrying")
        stage.clock.at += KEEP_FOR
        stage.source("n1", "connecting")
        assert stage.supervisor.nodes["n1"] is watch


def test_nodes_that_the_config_names_stay_whatever_the_jobs_do(tmp_path: Path) -> None:
    with staged(tmp_path, NAMED) as stage:
        seen = stage.queues["prod"].seen
        assert stage.runs()[0].nodes == ()
        seen((job(1, "n1", "n2", "n3"),), "ana")
        assert stage.runs()[0].nodes == ("n1", "me@n2", "n3")
        assert stage.hosts() == {"login1", "n1", "me@n2"}
        seen((), "ana")
        stage.source("n1", "retrying")
        assert stage.hosts() == {"login1", "n1", "me@n2"}
        assert not [
            event for event in stage.received if isinstance(event, SourceChanged) and event.source.phase == "off"
        ]


def test_a_look_that_shows_nothing_new_costs_nothing(tmp_path: Path) -> None:
    with staged(tmp_path, FOLLOWED) as stage:
        seen = stage.queues["prod"].seen
        seen((job(1, "n1"),), "ana")
        stage.source("n1", "retrying")
        plans, watches = stage.supervisor.plans, stage.supervisor.nodes
        count = sum(isinstance(event, RunsChanged) for event in stage.received)
        for _ in range(3):
            seen((job(1, "n1", priority=7),), "ana")
        stage.clock.at += 3600
        stage.source("n1", "connecting")
        assert stage.supervisor.plans is plans
        assert stage.supervisor.nodes is watches
        assert sum(isinstance(event, RunsChanged) for event in stage.received) == count == 2


def test_interactive_jobs_bring_no_nodes_and_no_runs(tmp_path: Path) -> None:
    with staged(tmp_path, FOLLOWED) as stage:
        stage.queues["prod"].seen((job(1, "n1", batch=False),), "ana")
        assert stage.hosts() == {"login1"}


def test_a_name_that_is_an_option_is_no_node(tmp_path: Path) -> None:
    with staged(tmp_path, FOLLOWED) as stage:
        stage.queues["prod"].seen((job(1, "-oProxyCommand=id", "n1;id", "n1"),), "ana")
        assert stage.hosts() == {"login1", "n1"}


def test_nothing_is_watched_any_more_after_the_stop(tmp_path: Path) -> None:
    with staged(tmp_path, FOLLOWED) as stage:
        stage.supervisor.stop()
        stage.queues["prod"].seen((job(1, "n1"),), "ana")
        assert stage.hosts() == {"login1"}
        assert stage.queues["prod"].requests == ["start", "stop"]


def test_a_job_on_this_machine_itself_needs_no_connection(tmp_path: Path) -> None:
    settings = Settings(clusters=(ClusterSettings(name="prod", nodes=None),))
    with staged(tmp_path, settings) as stage:
        assert stage.hosts() == {local_hostname()}
        stage.queues["prod"].seen((job(1, local_hostname()),), "ana")
        stage.source(local_hostname(), "up")
        assert stage.hosts() == {local_hostname()}


# ---- who is asked, and over what -------------------------------------------------------------------------------------


def test_each_cluster_has_its_queue_on_its_login_host(tmp_path: Path) -> None:
    clusters = (
        ClusterSettings(name="prod", login="login1", nodes=None, users=("ana", "bob"), slurm_every=60.0, spares=2),
        ClusterSettings(name="plain", login="login2", nodes=("me@n1",)),
        ClusterSettings(name="here", nodes=None),
        ClusterSettings(name="also-here", nodes=("n3",)),
    )
    with staged(tmp_path, Settings(clusters=clusters)) as stage:
        watched = [one.watched for one in stage.queues.values()]
    assert watched[0] == Watched(
        cluster="prod", login="login1", users=("ana", "bob"), every=60.0, spares=2, required=True
    )
    assert watched[1] == Watched(cluster="plain", login="login2", nodes=("n1",), required=False)
    assert (watched[2].cluster, watched[2].login, watched[2].required) == ("here", local_hostname(), True)
    assert len(watched) == 3


@pytest.mark.parametrize("run", [RunSettings(name="a", job="b"), RunSettings(name="a", script="/fsx/a.slurm")])
def test_a_run_with_a_job_needs_a_queue(tmp_path: Path, run: RunSettings) -> None:
    settings = Settings(clusters=(ClusterSettings(name="prod", login="login1"),), runs=(run,))
    with staged(tmp_path, settings) as stage:
        assert stage.queues["prod"].watched.required


def test_connections_are_lent_and_never_made_for_it(tmp_path: Path) -> None:
    with staged(tmp_path, NAMED) as stage:
        stage.source("n1", "retrying")
        with pytest.raises(HostUnreachable, match="n1"):
            stage.supervisor.shell_of("n1")
        with pytest.raises(HostUnreachable, match="n7 is not watched"):
            stage.supervisor.shell_of("n7")
        with pytest.raises(HostUnreachable):
            stage.queues["prod"].client_of()
        done = stage.supervisor.shell_of(local_hostname()).run(["echo", "$HOME"], timeout=60)
        assert done.stdout == b"$HOME\n"


def test_a_person_logs_in_to_a_host_as_the_connections_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_step = ClusterSettings(name="steps", login="login2", nodes=("n9",), connect=ConnectSettings(by="srun"))
    other = ClusterSettings(name="other", login="login3", nodes=("me@n5",))
    with staged(tmp_path, Settings(clusters=(*NAMED.clusters, by_step, other))) as stage:
        stage.source("me@n5", "connecting")
        command = stage.supervisor.ssh_command
        assert command("n1") == ("ssh", "-F", str(stage.ssh_config), "--", "n1")
        assert command("n5")[-1] == "me@n5"
        assert command("-oProxyCommand=x")[-2:] == ("--", "-oProxyCommand=x")
        assert command(local_hostname()) == f"{local_hostname()} is this machine"
        assert command("n9") == "n9 is reached by a step of a job, not over SSH"
        monkeypatch.setenv("PATH", str(tmp_path))
        assert command("n1") == "ssh is not installed on this machine"


def test_what_a_person_requests_goes_to_the_queue(tmp_path: Path) -> None:
    with staged(tmp_path, NAMED) as stage:
        stage.supervisor.poll_queue_soon("prod")
        stage.supervisor.poll_queue_soon("unknown")
        stage.supervisor.poll_job("prod/88_3")
        stage.supervisor.poll_job("unknown/1")
        stage.supervisor.refresh()
        stage.supervisor.refresh()
        assert stage.queues["prod"].requests == ["start", "poll_soon", "prod/88_3", "refresh"]


def test_what_is_suspicious_is_polled_early_at_most_every_15_s(tmp_path: Path) -> None:
    with staged(tmp_path, NAMED) as stage:
        for at in range(31):  # the rules ask once a second
            stage.clock.at = 100.0 + at
            stage.supervisor.poll_soon("slurm:prod")
        assert stage.queues["prod"].requests == ["start", "poll_soon", "poll_soon", "poll_soon"]


# ---- who looks at what -----------------------------------------------------------------------------------------------


def test_disks_of_the_runs_nodes_are_those_of_its_job(tmp_path: Path) -> None:
    disks = (DiskSettings(path="/tmp", on="run"), DiskSettings(path="/", on="nodes"))
    settings = Settings(clusters=FOLLOWED.clusters, disks=disks)
    with staged(tmp_path, settings) as stage:
        stage.queues["prod"].seen((job(1, "n1"),), "ana")
        stage.source("n1", "connecting")
        until(lambda: stage.supervisor.nodes["n1"]._assigned.spec is not None)
        specs = {host: watch._assigned.spec for host, watch in stage.supervisor.nodes.items()}
        assert {host: spec.disks for host, spec in specs.items() if spec} == {"n1": ("/", "/tmp"), "login1": ("/fsx",)}


def test_a_login_host_is_no_node_before_the_first_job() -> None:
    (cluster,) = FOLLOWED.clusters
    before = watch_plan(FOLLOWED, cluster, ())
    assert (before.hosts, before.nodes) == (("login1",), frozenset())
    after = watch_plan(FOLLOWED, cluster, (), ("n1",))
    assert (after.hosts, after.nodes) == (("login1", "n1"), frozenset({"n1"}))


def test_without_a_config_a_job_adds_this_machine_as_the_reader_of_its_log() -> None:
    settings, _ = load_settings(None, ("n1",))
    (cluster,) = settings.clusters
    assert watch_plan(settings, cluster, ()).hosts == ("n1",)
    assert watch_plan(settings, cluster, (RunSpec(name="llm", cluster="local"),)).hosts == (local_hostname(), "n1")


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "it did not happen within 120s"
        time.sleep(0.005)


def test_a_node_that_prometheus_has_is_connected_to_while_its_screen_is_open(tmp_path: Path) -> None:
    nodes = ("n1", "n2", "n3")
    metrics = (MetricsSettings(url="http://127.0.0.1:1"),)
    cluster = ClusterSettings(name="prod", login="login1", nodes=nodes, metrics=metrics)
    run = RunSettings(name="llm", nodes=("n2",), log="/fsx/log")
    with staged(tmp_path, Settings(clusters=(cluster,), runs=(run,))) as stage:
        assert stage.hosts() == {"login1", "n2"}
        stage.wait_for(lambda event: isinstance(event, SourceChanged) and event.source.error is not None)
        with pytest.raises(HostUnreachable, match="n3 is read from Prometheus and not connected to"):
            stage.supervisor.shell_of("n3")
        stage.supervisor.view_node("n3")
        until(lambda: stage.hosts() == {"login1", "n2", "n3"})
        stage.clock.at += VIEWED_FOR + 1
        stage.supervisor._wake.set()
        until(lambda: stage.hosts() == {"login1", "n2"})
    while not stage.events.empty():
        stage.received.append(stage.events.get())
    changed = [event.source for event in stage.received if isinstance(event, SourceChanged)]
    phases = {one.phase for one in changed if one.name in ("node:n2", "node:n3")}
    assert phases == {"waiting"}, "their lost connections say nothing; they wait for Prometheus"
    assert not [event for event in stage.received if isinstance(event, SourceRemoved)]
    assert [event.node for event in stage.received if isinstance(event, DisksForgotten)] == ["n3"]


def test_a_quota_is_queried_as_soon_as_its_host_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for pause in ("RETRY_UNREACHABLE", "CHECK_EVERY"):
        monkeypatch.setattr(f"collectors.quota.{pause}", 600.0)
    script = tmp_path / "lfs"
    script.write_text(f"#!/bin/sh\necho '{tmp_path} 5 4 6 - 12 0 100 -'\n")
    script.chmod(0o755)
    disk = DiskSettings(path=str(tmp_path), quota=QuotaSettings(command=(str(script),), parser="lustre"))
    stage = Stage(Settings(disks=(disk,)), tmp_path / "no_config", SystemClock())
    stage.supervisor.start()
    try:
        event = stage.wait_for(lambda event: isinstance(event, QuotaRead))
    finally:
        stage.supervisor.stop()
    assert isinstance(event, QuotaRead)
    assert event.quota.path == str(tmp_path)
