"""Who looks at what."""

from __future__ import annotations

from collectors.placement import Plan, merged, place
from trainmon.model import RunSpec
from trainmon.readings import LogSpec, Spec

RUN = RunSpec(
    name="llm",
    cluster="prod",
    log="/fsx/logs/*/x.out",
    checkpoints="/fsx/ckpt",
    kill_switch="/home/kill",
    nodes=("n2",),
)
PLAN = Plan(
    cluster="prod",
    hosts=("login", "n1", "n2"),
    nodes=frozenset({"n1", "n2"}),
    runs=(RUN,),
    shared_disks=("/fsx",),
    node_disks=("/",),
    run_disks=("/tmp",),
    keep="step",
)


def test_shared_files_are_read_once_on_the_login_host() -> None:
    specs = place(PLAN, {"login", "n1", "n2"})
    assert specs["login"].logs == (LogSpec("llm", "/fsx/logs/*/x.out"),)
    assert specs["login"].switches == ("/home/kill",)
    assert specs["login"].checkpoints == ("/fsx/ckpt",)
    assert specs["login"].disks == ("/fsx", "/fsx/ckpt", "/fsx/logs", "/home")
    assert (specs["n1"].logs, specs["n1"].switches, specs["n1"].checkpoints) == ((), (), ())
    assert specs["n1"].disks == ("/",)


def test_a_runs_own_nodes_look_at_their_local_disks() -> None:
    assert place(PLAN, {"login"})["n2"].disks == ("/", "/tmp")


def test_a_login_host_that_is_down_is_stood_in_for_by_a_node_that_answers() -> None:
    specs = place(PLAN, {"n2"})
    assert specs["login"].logs == ()
    assert specs["n2"].logs == (LogSpec("llm", "/fsx/logs/*/x.out"),)
    assert specs["n2"].keep == "step"


def test_before_anyone_answers_the_first_choice_is_asked() -> None:
    assert place(PLAN, ())["login"].logs != ()


def test_no_hosts_are_no_specs() -> None:
    assert place(Plan(cluster="c", hosts=(), nodes=frozenset()), ()) == {}


def test_a_host_that_two_clusters_share_reads_for_both() -> None:
    one = Spec(disks=("/", "/fsx"), logs=(LogSpec("a", "/a"),), checkpoints=("/fsx/a",), keep="step")
    other = Spec(
        period=1.0,
        disks=("/",),
        logs=(LogSpec("b", "/b"),),
        switches=("/kill",),
        checkpoints=("/fsx/b", "/fsx/a"),
    )
    both = merged(one, other)
    assert both.disks == ("/", "/fsx")
    assert both.logs == (LogSpec("a", "/a"), LogSpec("b", "/b"))
    assert both.checkpoints == ("/fsx/a", "/fsx/b")
    assert (both.period, both.switches, both.keep) == (1.0, ("/kill",), "step")
