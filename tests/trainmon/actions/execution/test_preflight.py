"""What has changed or cannot be read when an action is planned or begins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from collectors.probe.files.contents import Contents
from tests.trainmon.actions.cluster import only
from tests.trainmon.actions.execution.world import World, job
from tests.trainmon.actions.planning.test_retries import failed
from trainmon.actions.planning import split_location
from trainmon.analysis.attempts import with_file
from trainmon.lib import CommandFailed, HostUnreachable, say
from trainmon.lib.threads import decoder
from trainmon.model import FileContent
from trainmon.slurm import commands
from trainmon.transport.shell import Completed


def test_what_changes_while_the_log_is_kept_is_observed(world: World) -> None:
    def ended(*_: str) -> None:
        world.host.answers[commands.show_job("88_3")] = Completed(0, job(word="COMPLETED"), b"")

    world.book.write_text = ended
    record = world.act(only(world.plan("requeue")))
    assert record.outcome.startswith("job 88_3 is COMPLETED now, no longer running")
    assert not any(word[:2] == ("scontrol", "requeue") for word in world.host.ran)


def test_a_host_may_be_an_address_with_colons() -> None:
    assert split_location("fe80::1:/fsx/a:b.out") == ("fe80::1", "/fsx/a:b.out")
    assert split_location("login:/fsx/a:/b.out") == ("login", "/fsx/a:/b.out")


def test_a_kill_switch_whose_job_ended_meanwhile_is_not_dropped(world: World, tmp_path: Path) -> None:
    action = only(world.plan("kill"))
    world.host.answers[commands.show_job("88_3")] = Completed(0, job(word="COMPLETED"), b"")
    record = world.act(action)
    assert (record.status, record.outcome) == (
        "refused", "job 88_3 is COMPLETED now, no longer running (nothing was done; check it and try again)",
    )  # fmt: skip
    assert not (tmp_path / "kill").exists()


def test_a_kill_switch_is_dropped_while_slurm_is_silent_and_says_so(world: World, tmp_path: Path) -> None:
    action = only(world.plan("kill"))
    world.host.answers[commands.show_job("88_3")] = Completed(
        1, b"", b"slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
    )
    record = world.act(action)
    assert (record.status, (tmp_path / "kill").exists()) == ("done", True)
    assert record.note == (
        "could not check whether job 88_3 still runs: login: Unable to contact slurm controller (connect failure)"
    )


def test_a_node_that_another_drained_keeps_their_reason(world: World) -> None:
    clusters = {"prod": replace(world.state.clusters["prod"], may_operate=True)}
    world.state = replace(world.state, clusters=clusters)
    mark = commands.MARK
    free, theirs = (
        f"{mark}n1{mark}{word}{mark}root{mark}2026-11-21T11:00:00{mark}gpu:8{mark}gpu{mark}{why}\n".encode()
        for word, why in (("mixed", "none"), ("draining", "RMA 4711"))
    )
    world.host.answers[commands.nodes(("n1",))] = Completed(0, free, b"")
    action = only(world.plan("exclude", "n1"))
    assert action.title == "Drain n1"
    world.host.answers[commands.nodes(("n1",))] = Completed(0, theirs, b"")
    record = world.act(action)
    assert (record.status, record.outcome.startswith("n1 is drained already: RMA 4711")) == ("refused", True)
    assert action.operation.argv not in world.host.ran


def test_a_job_that_changed_meanwhile_is_left_alone(world: World) -> None:
    action = only(world.plan("requeue"))
    world.host.answers[commands.show_job("88_3")] = Completed(0, job(restarts=1), b"")
    record = world.act(action)
    assert record.status == "refused"
    assert record.outcome == "job 88_3 was requeued meanwhile (restart 1) (nothing was done; check it and try again)"
    assert action.operation not in world.host.ran
    assert not any(word[:2] == ("scontrol", "requeue") for word in world.host.ran)


def test_a_kill_switch_that_was_armed_meanwhile_aborts_a_requeue(world: World, tmp_path: Path) -> None:
    action = only(world.plan("requeue"))
    (tmp_path / "kill").touch()
    record = world.act(action)
    assert (record.status, say(record.outcome).startswith("the kill switch has been armed meanwhile")) == (
        "refused",
        True,
    )


def test_a_host_that_is_not_connected_refuses_every_plan_with_a_message(world: World) -> None:
    world.unreachable = HostUnreachable("login", "login: no answer in 10s")
    for verb in ("save", "unkill", "requeue", "cancel", "signal", "queue"):
        refusals = world.plan(verb).refusals
        assert [refusal.why.removeprefix("it is not known whether a switch is armed: ") for refusal in refusals] == [
            f"{world.state.runs['llm'].spec.save_switch}: login: no answer in 10s" if verb == "save"
            else "login: no answer in 10s"
        ]  # fmt: skip


def test_a_job_that_slurm_forgot_is_refused(world: World) -> None:
    gone = Completed(1, b"", b"slurm_load_jobs error: Invalid job id specified\n")
    world.host.answers[commands.show_job("88_3")] = gone
    assert world.plan("cancel", "prod/88_3").refusals[0].why == "Slurm no longer knows job 88_3: it has ended"


def test_a_job_that_slurm_never_knew_is_not_reported_as_ended(world: World) -> None:
    world.host.answers[commands.show_job("99999")] = Completed(
        1, b"", b"slurm_load_jobs error: Invalid job id specified\n"
    )
    assert world.plan("cancel", "prod/99999").refusals[0].why == (
        "Slurm knows no job 99999: it ended long ago or never existed"
    )


def test_a_silent_controller_is_queried_once_and_not_for_every_job(world: World) -> None:
    silent = Completed(1, b"", b"slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n")
    world.host.answers[commands.queue()] = silent
    (refusal,) = world.plan("requeue").refusals
    assert refusal.why == "login: Unable to contact slurm controller (connect failure)"
    assert world.host.ran == [commands.queue()]


def test_an_sbatch_that_hangs_keeps_nothing_else_from_being_read(world: World) -> None:
    def hangs() -> Completed:
        raise CommandFailed("login: env did not end in 8s")

    test = ("sbatch", "--test-only", "--nodes=2")
    world.host.answers[test] = hangs
    plan = world.plan("requeue", "llm", "prod/70")
    assert world.host.ran.index(test) > world.host.ran.index(commands.show_job("70"))
    assert [one.subject for one in plan.actions] == ["llm"]
    (unnamed,) = (one for one in plan.checks if one.check == "the next nodes of llm")
    assert (unnamed.outcome, unnamed.why) == ("not checked", "login: sbatch did not end in 8s")


def test_a_check_of_nodes_that_fails_keeps_nobody_from_a_restart(world: World) -> None:
    def broken(run: str | None, nodes: Sequence[str]) -> Any:
        raise ZeroDivisionError("boom")

    world.performer.gate = broken
    plan = world.plan("requeue")
    assert only(plan).verb == "requeue"
    (unnamed,) = (one for one in plan.checks if one.check == "the next nodes of llm")
    assert unnamed.why == "its nodes could not be checked (ZeroDivisionError('boom'))"


def test_steps_decide_who_gets_a_signal(world: World) -> None:
    number = commands.steps("88_3")
    mark = commands.MARK
    world.host.answers[number] = Completed(0, f"{mark}88_3.batch\n{mark}88_3.0\n".encode(), b"")
    assert only(world.plan("signal")).operation.argv == ("scancel", "--signal=USR1", "88_3")
    world.host.answers[number] = Completed(0, f"{mark}88_3.batch\n".encode(), b"")
    assert only(world.plan("signal")).operation.argv == ("scancel", "--signal=USR1", "--batch", "88_3")
    ours = f"{mark}88_3.batch|batch\n{mark}88_3.0|trainmon\n"
    world.host.answers[number] = Completed(0, ours.encode(), b"")
    assert only(world.plan("signal")).operation.argv == ("scancel", "--signal=USR1", "--batch", "88_3")


def test_the_config_is_compared_with_what_the_probe_read_when_the_attempt_began(world: World, tmp_path: Path) -> None:
    config, oom = tmp_path / "llm's config.yaml", failed(1, "cuda-oom")
    config.write_text("batch: 8\n")
    ((_, read),) = Contents({"files": [{"id": f"config_path {oom.attempt_id}", "pattern": str(config)}]}).operations(
        True
    )
    (line,) = read()
    content = decoder(FileContent).decode(msgspec.json.encode({**line, "v": 1, "t": 0.0}))
    world.state = replace(world.state, attempts={oom.attempt_id: with_file(oom, content, 0.0, 0.0)})

    def warnings() -> tuple[str, ...]:
        return only(world.plan("requeue")).warnings

    config.write_text("# the same\nbatch: 8\n")
    (same,) = warnings()
    assert same.startswith("Another attempt may not help: nothing has changed since the attempt (config ")
    config.write_text("batch: 4\n")
    assert warnings() == ()
    config.write_bytes(b"x" * 40_000)
    assert warnings() == (), "a long file is another one"
    config.unlink()
    (unknown,) = warnings()
    assert unknown.endswith(f"It is not known whether the config has changed: {config} on login: no such file.")
