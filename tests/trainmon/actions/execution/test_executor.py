"""The performer: plans from what it reads just before, acts written down, checked again, done and told."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.lab.sshd import until
from tests.trainmon.actions.cluster import NOW, RUNNING, ask, done, only, planned
from tests.trainmon.actions.execution.world import Host, World, job
from tests.trainmon.actions.planning.test_evaluate import of as crashed
from tests.trainmon.actions.planning.test_stacks import known as with_ranks
from trainmon.ledger.ledger import Ledger
from trainmon.lib import CommandFailed, HostUnreachable, TrainmonError
from trainmon.model import CreateFile, JobChanged, RankWay
from trainmon.slurm import commands
from trainmon.transport.shell import Completed


def test_a_save_is_planned_recorded_done_and_reported(world: World, tmp_path: Path) -> None:
    action = only(world.plan("save"))
    assert not (tmp_path / "save").exists(), "a plan does nothing"
    assert world.host.ran == [], "a switch file needs no Slurm"
    record = world.act(action)
    assert (record.status, record.outcome) == ("done", f"{tmp_path}/save is there")
    assert (tmp_path / "save").read_text().endswith(f"loss spike ({action.id})\n")
    assert [(one.action.id, one.status) for one in world.book.records] == [(action.id, "asked")]
    assert (record.is_open, record.note) == (True, None)
    assert record.done_at is not None
    assert record.written_at is not None
    assert world.hurried == ["prod"]


def test_it_is_written_down_before_it_is_done(world: World, tmp_path: Path) -> None:
    seen: list[bool] = []
    world.book.write = lambda record: seen.append((tmp_path / "kill").exists())
    world.act(only(world.plan("kill")))
    assert seen == [False]
    assert (tmp_path / "kill").exists()


def test_the_budget_of_an_evaluator_survives_a_restart_and_an_hour(world: World, tmp_path: Path) -> None:
    """The State of the second program has never seen the first start: its ledger has."""
    world.state = crashed()
    world.host.answers[commands.show_job("80")] = Completed(0, job(word="FAILED"), b"")
    for spent, done_at in ((0, NOW), (1, NOW + 90_000)):
        ledger = Ledger(tmp_path, lambda problem: None)
        ledger.start()
        world.performer.stop()
        world.performer = world.made(ledger=ledger)
        action = only(world.plan("requeue", requested_at=done_at))
        assert dict(action.facts)["retry budget"] == f"retries used after evaluator: {spent} of 1"
        ledger.write(done(action, settled_at=done_at))
        ledger.stop()


def test_a_ledger_that_is_stuck_stops_nothing_and_the_record_says_so(world: World, tmp_path: Path) -> None:
    for error in (TrainmonError("the ledger does not answer"), RuntimeError("a bug")):
        world.book.error = error
        record = world.act(only(world.plan("save" if isinstance(error, TrainmonError) else "kill")))
        assert (record.status, record.note) == ("done", f"not recorded in the ledger: {error}")
    assert (tmp_path / "save").exists()


class Ranks:
    """What reads stacks, and is asked for them."""

    def __init__(self, *ways: RankWay) -> None:
        self.ways, self.read_of = ways, list[object]()

    def find(self, run: str) -> tuple[RankWay, ...]:
        if not self.ways:
            raise CommandFailed("n1 does not answer")
        return self.ways

    def read(self, run: str, ranks: Sequence[RankWay]) -> str:
        self.read_of.append((run, tuple(ranks)))
        return "rank 3 differs" if self.ways else str(self.find(run))


def test_stacks_are_read_of_whom_the_plan_has_shown(world: World) -> None:
    world.state = with_ranks()
    assert world.plan("stacks").refusals[0].why == "stacks are not read here"
    way = RankWay(rank=3, node="n1", pid=103, started_s=50.0, way="signal")
    world.performer.stacks = ranks = Ranks(way)
    action = only(world.plan("stacks"))
    assert ranks.read_of == [], "a plan reads none"
    record = world.act(action)
    assert (record.status, record.outcome) == ("done", "rank 3 differs")
    assert ranks.read_of == [("llm", (way,))]
    assert [one.action.id for one in world.book.records] == [action.id]
    world.performer.stacks = Ranks()
    assert world.plan("stacks").refusals[0].why == "n1 does not answer"
    failed = world.act(replace(action, id="f" * 12))
    assert (failed.status, failed.outcome) == ("failed", "nothing was done: n1 does not answer")


def test_a_switch_that_appeared_meanwhile_is_left(world: World, tmp_path: Path) -> None:
    action = only(world.plan("kill"))
    (tmp_path / "kill").write_text("by ben\n")
    record = world.act(action)
    assert record.status == "failed"
    assert "exists already" in record.outcome
    assert (tmp_path / "kill").read_text() == "by ben\n"
    assert not record.is_open


def test_u_reads_what_is_armed_and_removes_just_that(world: World, tmp_path: Path) -> None:
    assert world.plan("unkill").refusals[0].why == "no switch is armed"
    (tmp_path / "kill").write_text("by ben\n")
    plan = world.plan("unkill")
    action = only(plan)
    assert dict(action.facts)["armed"].endswith(": “by ben”")
    assert (dict(action.facts)["content"], plan.typed) == ("by ben", str(tmp_path / "kill"))
    (tmp_path / "kill").write_text("another by ben\n")
    record = world.act(action)
    assert (record.status, "no longer the file that was shown" in record.outcome) == ("failed", True)
    record = world.act(only(world.plan("unkill")))
    assert (record.status, (tmp_path / "kill").exists()) == ("done", False)


def test_u_removes_what_trainmon_wrote_without_typing_and_no_dangling_link(world: World, tmp_path: Path) -> None:
    assert world.act(only(world.plan("kill"))).status == "done"
    plan = world.plan("unkill")
    assert plan.typed is None
    assert world.act(only(plan)).status == "done"
    (tmp_path / "kill").symlink_to("nowhere")
    refusal = world.plan("unkill").refusals[0]
    assert refusal.why.endswith("is a dangling symbolic link to nowhere: it does not arm the switch")
    assert world.plan("kill").refusals[0].hint.startswith("remove the link first: rm ")
    assert (tmp_path / "kill").is_symlink()


def test_a_directory_that_is_missing_is_refused_before_anything(world: World) -> None:
    spec = replace(world.state.runs["llm"].spec, save_switch="/nowhere/at/all/save")
    world.state = replace(world.state, runs={"llm": replace(world.state.runs["llm"], spec=spec)})
    assert world.plan("save").refusals[0].why == "/nowhere/at/all/save: its directory is missing"


@pytest.mark.parametrize(
    ("answer", "status", "outcome"),
    [
        (Completed(1, b"", b"Access/permission denied for job 88_3\n"), "failed",
         "nothing was done: login: Access/permission denied for job 88_3"),
        (Completed(1, b"", b"slurm_requeue error: Unable to contact slurm controller (connect failure)\n"), "failed",
         "nothing was done: login: Unable to contact slurm controller (connect failure)"),
        (Completed(1, b"", b"Socket timed out on send/recv operation\n"), "unknown",
         "it is not known whether it was done: login: Socket timed out on send/recv operation"),
        (Completed(1, b"", b"\x1b[2Jevil\x07\n"), "failed", "nothing was done: login: evil"),
    ],
)  # fmt: skip
def test_what_slurm_says_is_what_is_reported(world: World, answer: Completed, status: str, outcome: str) -> None:
    action = only(world.plan("requeue"))
    world.host.answers["scontrol", "requeue", "Incomplete", "88_3"] = answer
    record = world.act(action)
    assert (record.status, record.outcome, record.is_open) == (status, outcome, status == "unknown")


def test_a_command_that_does_not_answer_leaves_it_unknown(world: World) -> None:
    def silent() -> Completed:
        raise CommandFailed("login: env did not end in 25s")

    action = only(world.plan("cancel"))
    world.host.answers["scancel", "88_3"] = silent
    record = world.act(action)
    assert (record.status, record.is_open) == ("unknown", True)
    assert record.outcome.startswith("it is not known whether it was done: login: scancel did not ")


def test_a_connection_that_is_gone_is_nothing_done(world: World) -> None:
    action = only(world.plan("kill"))
    world.unreachable = HostUnreachable("login", "login: no data for 40s", hint="its network is gone")
    record = world.act(action)
    assert (record.status, record.is_open) == ("failed", False)
    assert record.outcome == "nothing was done: login: no data for 40s (its network is gone)"


def test_another_is_queued_from_a_login_shell_and_its_number_is_known(world: World, tmp_path: Path) -> None:
    action = only(world.plan("queue", count=2))
    line = ("bash -lc", *action.operation.argv)
    world.host.answers[line] = Completed(0, b"Welcome to prod\nSubmitted batch job 95\n", b"")
    record = world.act(action)
    assert line in world.host.ran
    assert (record.status, record.outcome, record.made) == ("done", "submitted as job 95", "95")
    assert action.operation.argv[-1] == f"{tmp_path}/train.slurm"


def test_an_excluded_node_is_reported_as_soon_as_it_is_known(world: World) -> None:
    waiting = replace(RUNNING, state="PENDING", node_count=1)
    world.state = replace(world.state, jobs={"prod/88_3": waiting})
    world.host.answers[commands.show_job("88_3")] = Completed(0, job(word="PENDING"), b"")
    action = only(world.plan("exclude", "n1"))

    def updated() -> Completed:
        world.host.answers[commands.show_job("88_3")] = Completed(0, job(word="PENDING", excluded="n1"), b"")
        return Completed(0, b"", b"")

    world.host.answers[action.operation.argv] = updated
    world.act(action)
    until(lambda: any(isinstance(event, JobChanged) for event in world.events), "the job is told")
    (changed,) = [event.job for event in world.events if isinstance(event, JobChanged)]
    assert (changed.key, changed.excluded) == ("prod/88_3", ("n1",))


def test_an_action_that_comes_twice_is_done_once(world: World) -> None:
    action = only(world.plan("requeue"))
    world.performer.act((action, action))
    world.performer.act((action,))
    until(lambda: world.record(action).status == "done", "it is done")
    world.act(only(world.plan("save")))
    assert sum(word[:2] == ("scontrol", "requeue") for word in world.host.ran) == 1


def test_read_only_reads_nothing_and_does_nothing(world: World, tmp_path: Path) -> None:
    action = only(world.plan("kill"))
    world.performer = world.made(read_only=True)
    assert world.plan("kill").refusals[0].why == "read-only: nothing is changed from here"
    record = world.act(action)
    assert (record.status, record.outcome) == ("refused", "read-only: nothing is changed from here")
    assert not (tmp_path / "kill").exists()


def test_a_plan_is_answered_on_another_thread(world: World) -> None:
    threads: list[threading.Thread] = []
    for one in (ask("kill"), ask("kill", "nobody"), ask("exclude", "nothing")):
        world.performer.prepare(one, lambda plan: threads.append(threading.current_thread()))
    until(lambda: len(threads) == 3, "three plans")
    assert threading.current_thread() not in threads


def test_a_host_that_hangs_costs_its_own_plan_and_stop_does_not_wait(world: World) -> None:
    world.performer = world.made(plan_timeout=0.3)
    release, answered = threading.Event(), threading.Event()

    def hang() -> Completed:
        release.wait(60)
        answered.set()
        return Completed(0, job(), b"")

    world.host.answers[commands.show_job("88_3")] = hang
    assert world.plan("cancel").refusals[0].why == "login has not answered in 0.3s"
    world.performer.stop()
    assert not answered.is_set()
    release.set()


def test_what_waits_for_a_host_is_bounded(world: World) -> None:
    release = threading.Event()

    def hang() -> Completed:
        release.wait(20)
        return Completed(0, b"", b"")

    world.host.answers["scancel", "88_3"] = hang
    cancel = only(planned("cancel", of=world.state))
    many = [replace(cancel, id=f"{number:012x}") for number in range(80)]
    world.performer.act(many)
    found = [world.record(action) for action in many]
    release.set()
    refused = [record for record in found if record.status == "refused"]
    assert 10 <= len(refused) <= 16
    assert refused[0].outcome == "login is busy: its queue is full; nothing was done"
    world.performer.stop()


def test_after_a_stop_nothing_is_begun(world: World, tmp_path: Path) -> None:
    action = only(world.plan("kill"))
    world.performer.stop()
    world.performer.act((action,))
    assert world.events == []
    assert not (tmp_path / "kill").exists()


def test_a_bug_in_the_middle_is_unknown_and_reported(world: World) -> None:
    def broken() -> Completed:
        raise ZeroDivisionError("boom")

    action = only(world.plan("cancel"))
    world.host.answers["scancel", "88_3"] = broken
    record = world.act(action)
    assert record.status == "unknown"
    assert record.outcome == "it was interrupted (ZeroDivisionError: boom): it is not known whether it was done"


def test_a_plan_that_cannot_be_made_is_a_refusal(world: World) -> None:
    assert world.plan("no such verb").refusals[0].why.startswith("the plan could not be made (KeyError")


def test_a_filesystem_that_hangs_is_unknown(world: World) -> None:
    class Hung(Host):
        def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float) -> Completed:
            raise CommandFailed(f"login: {argv[0]} did not end in {timeout:g}s")

    action = only(planned("kill", of=world.state))
    world.host = Hung(world.host._local)
    record = world.act(action)
    assert (record.status, record.is_open) == ("unknown", True)
    assert isinstance(action.operation, CreateFile)
    words = f"login: sh did not end in 10s: the filesystem of {action.operation.path} may hang"
    assert record.outcome == f"it is not known whether it was done: {words}"
