"""The performer: plans from what it reads just before, acts written down, checked again, done and told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.lab.sshd import until
from tests.trainmon.actions.cluster import ANA, DONE, RUN, RUNNING, SPEC, ask, only, planned, state
from trainmon.actions.execution import run
from trainmon.actions.execution.executor import Executor
from trainmon.actions.planning import split_location
from trainmon.lib import CommandFailed, HostUnreachable, SystemClock, TrainmonError
from trainmon.model import Action, ActionChanged, CreateFile, Event, JobChanged, Plan, Record, State
from trainmon.slurm import commands
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.local import LocalShell
from trainmon.transport.shell import Completed

JOB = (
    "JobId=91 ArrayJobId=88 ArrayTaskId=3 JobName=llm UserId=ana(1000) GroupId=ana(1000) MCS_label=N/A Priority=10 "
    "Nice=0 Account=a QOS=normal JobState={state} Reason=None Dependency=(null) Requeue=1 Restarts={restarts} "
    "BatchFlag=1 Reboot=0 ExitCode=0:0 RunTime=02:00:00 TimeLimit=04:00:00 SubmitTime=2026-11-21T09:30:00 "
    "StartTime=2026-11-21T10:00:00 EndTime=2026-11-21T14:00:00 Partition=gpu NodeList=n[1-2] NumNodes=2 "
    "ExcNodeList={excluded} Command=/fsx/train.slurm WorkDir=/fsx/work StdErr={out} StdIn=/dev/null "
    "StdOut={out}\n"
)


def job(*, word: str = "RUNNING", restarts: int = 0, excluded: str = "(null)", out: str = "/fsx/llm.out") -> bytes:
    return JOB.format(state=word, restarts=restarts, excluded=excluded, out=out).encode()


class Host:
    """A login host: Slurm's commands answer from a table, all others really run here."""

    host = "login"
    prompted = False

    def __init__(self, local: LocalShell) -> None:
        self._local = local
        self.answers: dict[tuple[str, ...], Completed | Callable[[], Completed]] = {
            commands.queue(): Completed(0, b"", b""),
            commands.show_job("88_3"): Completed(0, job(), b""),
        }
        self.ran: list[tuple[str, ...]] = []

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float) -> Completed:
        words = tuple(argv)
        if words[0] == "env":
            words = words[next(i for i, word in enumerate(words) if word.startswith("SLURM_BITSTR_LEN")) + 1 :]
        elif words[:2] == ("bash", "-lc"):
            words = ("bash -lc", *words[4:])
        elif words[0] in ("sh", "tail"):
            return self._local.run(argv, stdin=stdin, timeout=timeout)
        self.ran.append(words)
        answer = self.answers.get(words, Completed(0, b"", b""))
        return answer if isinstance(answer, Completed) else answer()

    def stream(self, argv: Sequence[str], sink: Any) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to close."""


class Book:
    """A ledger that remembers in which order it was written to, and can be stuck."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.texts: list[tuple[str, ...]] = []
        self.error: Exception | None = None

    def write(self, record: Record) -> None:
        if self.error is not None:
            raise self.error
        self.records.append(record)

    def write_text(self, action_id: str, kind: str, host: str, path: str, text: str) -> None:
        self.texts.append((action_id, kind, host, path, text))


class World:
    """A performer and all that it holds on to."""

    def __init__(self, local: LocalShell, known: State) -> None:
        self.host, self.book, self.state = Host(local), Book(), known
        self.events: list[Event] = []
        self.hurried: list[str] = []
        self.unreachable: TrainmonError | None = None
        self.performer = self.made()

    def made(self, **fields: Any) -> Executor:
        plain = {"ledger": self.book, "poll_soon": self.hurried.append, "clock": SystemClock(), "actor": ANA}
        return Executor(self.shell_of, lambda: self.state, self.events.append, **plain | fields)

    def shell_of(self, host: str) -> Host:
        if self.unreachable is not None:
            raise self.unreachable
        assert host == "login"
        return self.host

    def plan(self, verb: Any, *subjects: str, seconds: float = 12.0, **fields: Any) -> Plan:
        plans: list[Plan] = []
        self.performer.prepare(ask(verb, *subjects, **fields), plans.append)
        until(lambda: plans, "the plan has come", seconds)
        return plans[0]

    def act(self, *actions: Action) -> Record:
        """What becomes of the last one."""
        self.performer.act(actions)
        until(lambda: all(self.record(action).status != "asked" for action in actions), "all is told")
        return self.record(actions[-1])

    def record(self, action: Action) -> Record:
        found = [event.record for event in self.events if isinstance(event, ActionChanged)]
        return [record for record in found if record.action.id == action.id][-1]


@pytest.fixture(scope="module")
def local() -> Iterator[LocalShell]:
    reader = EventLoop()
    reader.start()
    made = LocalShell(reader, host="login")
    yield made
    made.close()
    reader.stop()


@pytest.fixture
def world(local: LocalShell, tmp_path: Path) -> Iterator[World]:
    """The cluster of tests.trainmon.actions.cluster, with its files in a folder of the test."""
    (tmp_path / "llm.out").write_text("step 1\nHF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz\x1b[31m\nTraceback: boom\n")
    spec = replace(
        SPEC, kill_switch=f"{tmp_path}/kill", save_switch=f"{tmp_path}/save", log=f"{tmp_path}/llm.out",
        script=f"{tmp_path}/train.slurm",
    )  # fmt: skip
    log = replace(RUN.log, path=f"{tmp_path}/llm.out") if RUN.log is not None else None
    run = replace(RUN, spec=spec, kill=None, save=None, log=log)
    running = replace(RUNNING, stdout=f"{tmp_path}/llm.out")
    made = World(local, state(running, DONE, run=run))
    made.host.answers[commands.show_job("88_3")] = Completed(0, job(out=f"{tmp_path}/llm.out"), b"")
    yield made
    made.performer.stop()


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


def test_a_ledger_that_is_stuck_stops_nothing_and_the_record_says_so(world: World, tmp_path: Path) -> None:
    for error in (TrainmonError("the ledger does not answer"), RuntimeError("a bug")):
        world.book.error = error
        record = world.act(only(world.plan("save" if isinstance(error, TrainmonError) else "kill")))
        assert (record.status, record.note) == ("done", f"not recorded in the ledger: {error}")
    assert (tmp_path / "save").exists()


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
    action = only(world.plan("unkill"))
    assert dict(action.facts)["armed"].endswith(": “by ben”")
    (tmp_path / "kill").write_text("another by ben\n")
    record = world.act(action)
    assert (record.status, "no longer the file that was shown" in record.outcome) == ("failed", True)
    record = world.act(only(world.plan("unkill")))
    assert (record.status, (tmp_path / "kill").exists()) == ("done", False)


def test_a_directory_that_is_missing_is_refused_before_anything(world: World) -> None:
    spec = replace(world.state.runs["llm"].spec, save_switch="/nowhere/at/all/save")
    world.state = replace(world.state, runs={"llm": replace(world.state.runs["llm"], spec=spec)})
    assert world.plan("save").refusals[0].why == "/nowhere/at/all/save: its directory is missing"


def test_a_requeue_reads_checks_keeps_the_log_and_acts(world: World, tmp_path: Path) -> None:
    action = only(world.plan("requeue"))
    assert world.host.ran == [commands.queue(), commands.show_job("88_3")]
    record = world.act(action)
    assert world.host.ran[2:] == [commands.show_job("88_3"), ("scontrol", "requeue", "Incomplete", "88_3")]
    assert (record.status, record.outcome) == ("done", "scontrol requeue ended without an error message")
    ((id_, kind, host, path, text),) = world.book.texts
    assert (id_, kind, host, path) == (action.id, "log", "login", f"{tmp_path}/llm.out")
    assert text == "step 1\nHF_TOKEN=***\nTraceback: boom\n"


def test_errors_in_a_file_of_their_own_are_kept_as_well(world: World, tmp_path: Path) -> None:
    errors = tmp_path / "llm.err"
    errors.write_text("RuntimeError: boom\n")
    action = replace(only(world.plan("requeue")), keep_errors=f"login:{errors}")
    assert world.act(action).status == "done"
    assert [(path, text) for _, _, _, path, text in world.book.texts] == [
        (f"{tmp_path}/llm.out", "step 1\nHF_TOKEN=***\nTraceback: boom\n"),
        (str(errors), "RuntimeError: boom\n"),
    ]


def test_a_log_that_cannot_be_read_is_a_note_and_no_hindrance(world: World, tmp_path: Path) -> None:
    action = only(world.plan("requeue"))
    (tmp_path / "llm.out").unlink()
    record = world.act(action)
    assert record.status == "done"
    assert record.note == f"the end of the log was not kept: {tmp_path}/llm.out: No such file or directory"


def test_the_log_s_end_is_on_the_disk_before_the_requeue(world: World) -> None:
    order: list[str] = []
    world.book.write_text = lambda *_: order.append("kept")

    def requeued() -> Completed:
        order.append("requeued")
        return Completed(0, b"", b"")

    world.host.answers["scontrol", "requeue", "Incomplete", "88_3"] = requeued
    world.act(only(world.plan("requeue")))
    assert order == ["kept", "requeued"]


def test_what_changes_while_the_log_is_kept_is_observed(world: World) -> None:
    def ended(*_: str) -> None:
        world.host.answers[commands.show_job("88_3")] = Completed(0, job(word="COMPLETED"), b"")

    world.book.write_text = ended
    record = world.act(only(world.plan("requeue")))
    assert record.outcome.startswith("job 88_3 is COMPLETED now, no longer running")
    assert not any(word[:2] == ("scontrol", "requeue") for word in world.host.ran)


def test_a_log_that_the_ledger_does_not_take_is_a_note(world: World) -> None:
    def stuck(*_: str) -> None:
        raise TrainmonError("the ledger did not answer in 5 s")

    world.book.write_text = stuck
    record = world.act(only(world.plan("requeue")))
    assert (record.status, record.note) == ("done", "the end of the log was not kept: the ledger did not answer in 5 s")


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
    assert (record.status, record.outcome.startswith("the kill switch has been armed meanwhile")) == ("refused", True)


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
        raise CommandFailed("login: env did not end in 25 s")

    action = only(world.plan("cancel"))
    world.host.answers["scancel", "88_3"] = silent
    record = world.act(action)
    assert (record.status, record.is_open) == ("unknown", True)
    assert record.outcome.startswith("it is not known whether it was done: login: scancel did not ")


def test_a_connection_that_is_gone_is_nothing_done(world: World) -> None:
    action = only(world.plan("kill"))
    world.unreachable = HostUnreachable("login", "login: no data for 40 s", hint="its network is gone")
    record = world.act(action)
    assert (record.status, record.is_open) == ("failed", False)
    assert record.outcome == "nothing was done: login: no data for 40 s (its network is gone)"


def test_a_host_that_is_not_connected_refuses_every_plan_with_a_message(world: World) -> None:
    world.unreachable = HostUnreachable("login", "login: no answer in 10 s")
    for verb in ("save", "unkill", "requeue", "cancel", "signal", "queue"):
        refusals = world.plan(verb).refusals
        assert [refusal.why.removeprefix("it is not known whether a switch is armed: ") for refusal in refusals] == [
            f"{world.state.runs['llm'].spec.save_switch}: login: no answer in 10 s" if verb == "save"
            else "login: no answer in 10 s"
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


def test_steps_decide_who_gets_a_signal(world: World) -> None:
    number = commands.steps("88_3")
    mark = commands.MARK
    world.host.answers[number] = Completed(0, f"{mark}88_3.batch\n{mark}88_3.0\n".encode(), b"")
    assert only(world.plan("signal")).operation.argv == ("scancel", "--signal=USR1", "88_3")
    world.host.answers[number] = Completed(0, f"{mark}88_3.batch\n".encode(), b"")
    assert only(world.plan("signal")).operation.argv == ("scancel", "--signal=USR1", "--batch", "88_3")


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
    assert world.plan("cancel").refusals[0].why == "login has not answered in 0.3 s"
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


def test_the_end_of_a_long_log_begins_with_a_whole_line(local: LocalShell, tmp_path: Path) -> None:
    log = tmp_path / "-long log.out"
    log.write_text("".join(f"line {number:08d}\n" for number in range(30_000)))
    lines = run.log_tail(local, str(log)).split("\n")
    assert lines[0].startswith("line ")
    assert lines[-2:] == ["line 00029999", ""]
    assert 18_000 < len(lines) < 18_800


def test_a_filesystem_that_hangs_is_unknown(world: World) -> None:
    class Hung(Host):
        def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float) -> Completed:
            raise CommandFailed(f"login: {argv[0]} did not end in {timeout:g} s")

    action = only(planned("kill", of=world.state))
    world.host = Hung(world.host._local)
    record = world.act(action)
    assert (record.status, record.is_open) == ("unknown", True)
    assert isinstance(action.operation, CreateFile)
    words = f"login: sh did not end in 10 s: the filesystem of {action.operation.path} may hang"
    assert record.outcome == f"it is not known whether it was done: {words}"
