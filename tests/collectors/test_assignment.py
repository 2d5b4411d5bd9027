"""Who looks at what."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import msgspec
import pytest

from collectors import assignment
from collectors.assignment import WatchPlan, merge, requested_parts, rivals, with_followed
from trainmon.model import (
    AnyReading,
    CheckpointListing,
    DiskSample,
    DiskSamples,
    FileContent,
    FileSpec,
    HostSample,
    LogChunk,
    LogSpec,
    RunSpec,
    Spec,
    SwitchSample,
    SwitchSamples,
    WandbRows,
)

RUN = RunSpec(
    name="llm",
    cluster="prod",
    log="/fsx/logs/*/x.out",
    checkpoints="/fsx/ckpt",
    kill_switch="/home/kill",
    nodes=("n2",),
)
PLAN = WatchPlan(
    cluster="prod",
    hosts=("login", "n1", "n2"),
    nodes=frozenset({"n1", "n2"}),
    runs=(RUN,),
    shared_disks=("/fsx",),
    node_disks=("/",),
    run_disks=("/tmp",),
    keep="step",
)


LOGS = (LogSpec("llm", "/fsx/logs/*/x.out"), LogSpec("evals 1 of llm", "/fsx/ckpt/evals.jsonl", optional=True))


def assign(plan: WatchPlan, up: Collection[str], *, is_awaited: bool = False) -> Mapping[str, Spec]:
    return assignment.assign((plan,), up, plan.hosts[:1] if is_awaited else ())[0]


def stand_in_specs(plan: WatchPlan, up: Collection[str], *, is_awaited: bool = False) -> Mapping[str, Spec]:
    return assignment.assign((plan,), up, plan.hosts[:1] if is_awaited else ())[1]


def test_shared_files_are_read_once_on_the_login_host() -> None:
    specs = assign(PLAN, {"login", "n1", "n2"})
    assert specs["login"].logs == LOGS
    assert specs["login"].switches == ("/home/kill",)
    assert specs["login"].checkpoints == ("/fsx/ckpt",)
    assert specs["login"].disks == ("/fsx", "/fsx/ckpt", "/fsx/logs", "/home")
    assert (specs["n1"].logs, specs["n1"].switches, specs["n1"].checkpoints) == ((), (), ())
    assert specs["n1"].disks == ("/",)


def test_the_files_of_a_w_and_b_client_are_read_once_and_a_stand_in_is_known_as_one() -> None:
    plan = msgspec.structs.replace(PLAN, runs=(msgspec.structs.replace(RUN, wandb_dir="/fsx/wandb", charts=("loss",)),))
    [wanted] = assign(plan, {"login", "n1"})["login"].wandb
    assert (wanted.id, wanted.directory, wanted.charts, wanted.pattern) == ("llm", "/fsx/wandb", ("loss",), "")
    spec, stand_in = assign(plan, {"n1", "n2"})["n1"], stand_in_specs(plan, {"n1", "n2"})["n1"]
    rows = WandbRows(v=1, t=1.0, id="llm")
    assert list(requested_parts(rows, spec, stand_in)) == [(rows, True)]
    assert list(requested_parts(rows, Spec(), Spec())) == []
    assert merge(spec, Spec()).wandb == (wanted,)


def test_a_runs_own_nodes_look_at_their_local_disks() -> None:
    assert assign(PLAN, {"login"})["n2"].disks == ("/", "/tmp")


def test_a_login_host_that_is_down_is_stood_in_for_by_a_node_that_answers() -> None:
    specs = assign(PLAN, {"n2"})
    assert specs["login"].logs == ()
    assert specs["n2"].logs == LOGS
    assert specs["n2"].keep == "step"


def test_before_anyone_answers_the_first_choice_is_polled() -> None:
    assert assign(PLAN, ())["login"].logs != ()


def test_nobody_stands_in_for_a_login_host_that_is_being_connected_for_the_first_time() -> None:
    specs = assign(PLAN, {"n1", "n2"}, is_awaited=True)
    assert [host for host, spec in specs.items() if any(not log.local for log in spec.logs)] == ["login"]
    assert stand_in_specs(PLAN, {"n1", "n2"}, is_awaited=True) == {}


def test_each_node_of_a_run_reads_its_log_if_that_is_on_its_own_disk() -> None:
    both = msgspec.structs.replace(PLAN, runs=(msgspec.structs.replace(RUN, nodes=("n1", "n2")),))
    own = assign(both, {"login", "n1", "n2"})
    assert own["n1"].logs == own["n2"].logs != ()
    specs = assign(PLAN, {"login", "n1", "n2"})
    assert specs["n2"].logs == (LogSpec("on its node: llm", "/fsx/logs/*/x.out", optional=True, local=True),)
    assert specs["n2"].keep == "step"
    assert assign(PLAN, {"n2"})["n2"].logs == LOGS, "the whole log, while it stands in for the login host"


@pytest.mark.parametrize(
    ("log", "other", "owns"),
    [
        ("/logs/*.out", "/logs/b-*.out", True),
        ("/logs/*.out", "/logs/b-1.out", True),
        ("/logs/*.out", "/logs/*.out", True),
        ("/logs/*/a.out", "/logs/7/*.out", True),
        ("/logs/a-[0-9]*.out", "/logs/a-7?.out", True),
        ("/logs/a-*.out", "/logs/b-*.out", False),
        ("/logs/a-*.out", "/logs/*.err.gz", False),
        ("/logs/*.out", "/logs/sub/b-*.out", False),
        ("/logs/a-*.out", "/logs/a.out", False),
        ("/logs/a.out", "/logs/a.out", False),
    ],
)
def test_a_log_that_two_patterns_match_belongs_to_the_longer_one(log: str, other: str, owns: bool) -> None:
    one, two = RunSpec(name="one", cluster="prod", log=log), RunSpec(name="two", cluster="prod", log=other)
    assert [name for name, _ in rivals([two, one]).items()] == (["one"] if owns else [])
    specs = assign(msgspec.structs.replace(PLAN, runs=(two, one)), {"login"})["login"].logs
    assert [bool(spec.without) for spec in specs if spec.id in ("one", "two")] == [False, owns]


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("/l/b-*.out", "/l/b-1.out", True),
        ("/l/b-*.out", "/l/b-1/2.out", False),
        ("/l/b-*.out", "/l/b-1.out2", False),
        ("/l/b-[!0-4]?.o(u)t", "/l/b-71.o(u)t", True),
        ("/l/b-[!0-4]?.o(u)t", "/l/b-21.o(u)t", False),
    ],
)
def test_the_paths_of_other_runs_are_a_regular_expression(pattern: str, path: str, matches: bool) -> None:
    runs = (RunSpec(name="one", cluster="prod", log="/l/*"), RunSpec(name="two", cluster="prod", log=pattern))
    without = assign(msgspec.structs.replace(PLAN, runs=runs), {"login"})["login"].logs[0].without
    assert (re.match(without, path) is not None) is matches


def test_who_stands_in_has_lent_what_it_would_not_look_at_for_itself() -> None:
    assert stand_in_specs(PLAN, {"login", "n1"}) == {}
    own = msgspec.structs.replace(PLAN, node_disks=("/", "/fsx"))
    (host,), (spec,) = zip(*stand_in_specs(own, {"n2"}).items(), strict=True)
    assert (host, spec.disks) == ("n2", ("/fsx/ckpt", "/fsx/logs", "/home"))
    assert (spec.logs, spec.switches, spec.checkpoints) == (
        LOGS,
        ("/home/kill",),
        ("/fsx/ckpt",),
    )


SPEC = Spec(
    disks=("/", "/fsx"), logs=(LogSpec("llm", "/l"),), switches=("/kill", "/save"), checkpoints=("/ckpt",),
    files=(FileSpec("config_path 88", "/c.yaml"),),
)  # fmt: skip
LENT = msgspec.structs.replace(SPEC, disks=("/fsx",), switches=("/save",))


def disks(*paths: str) -> DiskSamples:
    return DiskSamples(1, 1.0, tuple(DiskSample(path) for path in paths))


def switches(*paths: str) -> SwitchSamples:
    return SwitchSamples(1, 1.0, tuple(SwitchSample(path) for path in paths))


@pytest.mark.parametrize(
    ("reading", "parts"),
    [
        (disks("/", "/fsx", "/old"), [(disks("/"), False), (disks("/fsx"), True)]),
        (disks("/old"), []),
        (switches("/kill", "/save"), [(switches("/kill"), False), (switches("/save"), True)]),
        (LogChunk(1, 1.0, "llm"), [(LogChunk(1, 1.0, "llm"), True)]),
        (LogChunk(1, 1.0, "gone"), []),
        (CheckpointListing(1, 1.0, "/ckpt"), [(CheckpointListing(1, 1.0, "/ckpt"), True)]),
        (CheckpointListing(1, 1.0, "/old"), []),
        (FileContent(1, 1.0, "config_path 88"), [(FileContent(1, 1.0, "config_path 88"), True)]),
        (FileContent(1, 1.0, "config_path 87"), []),
        (HostSample(1, 1.0), [(HostSample(1, 1.0), False)]),
    ],
)
def test_of_a_reading_counts_what_was_requested_and_for_whom(
    reading: AnyReading, parts: list[tuple[AnyReading, bool]]
) -> None:
    assert list(requested_parts(reading, SPEC, LENT)) == parts
    assert [is_lent for _, is_lent in requested_parts(reading, SPEC, Spec())] == [False] * bool(parts)


def test_a_directory_in_which_an_action_awaits_a_checkpoint_is_read_every_two_seconds() -> None:
    slow = msgspec.structs.replace(SPEC, period=10.0)
    followed = with_followed(slow, {"/ckpt", "/elsewhere"})
    assert (followed.followed, followed.period) == (("/ckpt",), 2.0)
    assert with_followed(SPEC, {"/elsewhere"}) is SPEC
    assert with_followed(msgspec.structs.replace(SPEC, period=1.0), {"/ckpt"}).period == 1.0


def test_no_hosts_are_no_specs() -> None:
    assert assign(WatchPlan(cluster="c", hosts=(), nodes=frozenset()), ()) == {}


def test_a_host_that_two_clusters_share_reads_for_both() -> None:
    one = Spec(disks=("/", "/fsx"), logs=(LogSpec("a", "/a"),), checkpoints=("/fsx/a",), keep="step")
    other = Spec(
        period=1.0,
        disks=("/",),
        logs=(LogSpec("b", "/b"),),
        switches=("/kill",),
        checkpoints=("/fsx/b", "/fsx/a"),
        files=(FileSpec("config_path 88", "/c.yaml"),),
    )
    both = merge(one, other)
    assert both.disks == ("/", "/fsx")
    assert both.logs == (LogSpec("a", "/a"), LogSpec("b", "/b"))
    assert both.checkpoints == ("/fsx/a", "/fsx/b")
    assert both.files == other.files
    assert (both.period, both.switches, both.keep) == (1.0, ("/kill",), "step")
