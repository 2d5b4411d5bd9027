"""The commands that act: the plan is printed, somebody agrees or nothing is done, and the exit status is honest."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.cli.act.parts import Parts, job, state
from tests.trainmon.cli.test_main import trainmon
from tests.trainmon.ledger.records import action, record
from trainmon.actions.verbs import VERB, ask
from trainmon.cli.act.run import Options, carry_out, follow, have_answered, lines
from trainmon.cli.snapshot import StateWatcher
from trainmon.lib import say
from trainmon.model import (
    ActionRequest,
    CreateFile,
    Execute,
    Log,
    Milestone,
    Node,
    Plan,
    Record,
    Refusal,
    Source,
    State,
)

ASK = ActionRequest(verb="requeue", subjects=("video-2b",), requested_at=1000.0)
REFUSED = Refusal(subject="sweep", why="its kill switch is armed", hint=ask("take it back first: {}", "unkill"))
REQUEUE = action(
    facts=(("run", "video-2b"), ("command", "scontrol requeue Incomplete 88")),
    consequences=("It ends.", ask("{} cancels it for good.", "cancel")),
    warnings=("12 steps are lost.",),
    keep_log="login1:/fsx/log",
)
PLAN = Plan(request=ASK, actions=(REQUEUE,))
OPEN = replace(record(), action=REQUEUE, status="done", done_at=1001.0, outcome="requeued")
WAITS, RUNS = Milestone("it is pending again"), Milestone("it starts anew")
DONE = replace(OPEN, settled_at=1002.0, marks=(replace(WAITS, at=1002.0), replace(RUNS, at=1130.0)))


def result(parts: Parts, *words: str, **options: Any) -> int:
    seen = StateWatcher(parts.subscribe)
    try:
        return carry_out(parts, seen, "requeue", words or ("video-2b",), Options(**options))
    finally:
        seen.close()


def test_a_plan_waits_for_the_logs_of_hosts_that_answer() -> None:
    node = Node(name="gpu-001", cluster="prod", probe="nvml", host_at=9.0, gpus_at=9.0)
    answered = Source(name="node:gpu-001", kind="node", cluster="prod", health="ok", phase="up", answered_at=9.0)
    run = state().runs["video-2b"]
    unread = replace(run, spec=replace(run.spec, log="/fsx/llm.log"))
    early = state(sources={answered.name: answered}, nodes={node.name: node}, runs={"video-2b": unread})
    assert not have_answered(early)
    assert have_answered(
        replace(early, runs={"video-2b": replace(unread, log=Log(path="/fsx/llm.log", host="gpu-001"))})
    )


def test_a_plan_reads_as_a_person_needs_it() -> None:
    assert list(lines(replace(PLAN, refusals=(REFUSED,)))) == [
        "Requeue job 88 of video-2b",
        "  ◆ 12 steps are lost.",
        "  run      video-2b",
        "  command  scontrol requeue Incomplete 88",
        "  first    the end of login1:/fsx/log is copied to the ledger",
        "  then     It ends.",
        "           `cancel` cancels it for good.",
        "✗ refused: sweep: its kill switch is armed",
        "    → take it back first: `unkill`",
    ]


def test_a_plan_shows_the_line_of_a_switch_and_a_login_shell() -> None:
    drop = action(operation=CreateFile("/fsx/kill", "trainmon-tui kill by ana\x1b[2J"), title="Kill")
    submit = action("a2", operation=Execute(("sbatch", "x"), login_shell=True), title="Queue")
    assert list(lines(Plan(request=ASK, actions=(drop, submit)))) == [
        "Kill",
        "  content  trainmon-tui kill by ana",
        "",
        "Queue",
        "  how  in a login shell, so that its modules are loaded",
    ]


def test_a_sentence_names_a_key_of_the_dashboard_or_a_command() -> None:
    removes, whole = ask("{} removes it", "unkill"), ask("remove it first: {}", "unkill", subject="llm")
    assert (say(removes), say(removes, "command")) == ("U removes it", "`unkill` removes it")
    assert say(whole) == "remove it first: U, or trainmon-tui unkill llm"
    assert say(whole, "command") == "remove it first: trainmon-tui unkill llm"
    assert say(ask("until it is released ({}).", "release"), "command") == "until it is released (`release`)."
    assert say("armed by ana (“plan C failed; see S”)", "command") == "armed by ana (“plan C failed; see S”)"


def test_a_dry_run_prints_the_plan_and_does_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    parts = Parts(PLAN)
    assert result(parts, dry_run=True) == 0
    assert capsys.readouterr().out.startswith("Requeue job 88 of video-2b\n")
    assert parts.acted == []
    assert result(Parts(Plan(request=ASK, refusals=(REFUSED,))), dry_run=True) == 4


def test_the_request_has_what_the_command_line_says() -> None:
    parts = Parts(PLAN)
    result(parts, "88", dry_run=True, why="slow", count=3, switch="/s", run="video-2b")
    (ask,) = parts.requests
    assert (ask.verb, ask.subjects, ask.why, ask.count, ask.switch, ask.run, ask.signal) == (
        "requeue", ("prod/88",), "slow", 3, "/s", "video-2b", "USR1",
    )  # fmt: skip
    assert ask.is_exact, "unsave in a script takes no kill switch back"


def test_nobody_at_a_terminal_and_no_yes_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    parts = Parts(PLAN)
    assert result(parts) == 4
    assert parts.acted == []
    printed = capsys.readouterr()
    assert printed.out.startswith("Requeue job 88 of video-2b\n")
    assert printed.err == (
        "trainmon-tui: nothing was done: there is no terminal to confirm on; to go on without confirmation: --yes\n"
    )


def test_yes_does_it_and_reports_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    parts = Parts(PLAN, [replace(DONE, status="asked", done_at=None, outcome=""), DONE])
    assert result(parts, yes=True) == 0
    assert parts.acted == [REQUEUE]
    *_, done, waits, starts = capsys.readouterr().out.splitlines()
    assert done.endswith("  Requeue job 88 of video-2b: done: requeued")
    assert waits.endswith("  Requeue job 88 of video-2b: it is pending again")
    assert starts.endswith("  Requeue job 88 of video-2b: it starts anew")


@pytest.mark.parametrize(("typed", "code"), [(None, 4), ("87", 4), ("88", 0)])
def test_what_must_be_typed_is_not_skipped_by_yes(
    typed: str | None, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = Parts(replace(PLAN, typed="88", because="it holds 4 nodes"), [DONE])
    assert result(parts, yes=True, typed=typed) == code
    assert bool(parts.acted) == (code == 0)
    printed = capsys.readouterr().err
    expected = {
        None: "nothing was done: it holds 4 nodes; to go on without confirmation: --yes --typed 88",
        "87": "nothing was done: --typed is 87, but the plan requires 88",
        "88": "",
    }
    assert printed == (f"trainmon-tui: {expected[typed]}\n" if code else "")


@pytest.mark.parametrize(("status", "code"), [("failed", 1), ("refused", 4), ("unknown", 3)])
def test_how_it_went_is_the_exit_status(status: Any, code: int) -> None:
    assert result(Parts(PLAN, [replace(DONE, status=status, settled_at=1001.0)]), yes=True) == code


def test_the_worst_of_several_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    second = replace(REQUEUE, id="a2")
    becomes = [DONE, replace(DONE, action=second, status="failed", outcome="Access/permission denied")]
    assert result(Parts(replace(PLAN, actions=(REQUEUE, second)), becomes), yes=True) == 1
    assert result(Parts(replace(PLAN, refusals=(REFUSED,)), [DONE]), yes=True) == 4


def test_what_follows_is_waited_for_and_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    steps = [
        replace(OPEN, marks=(WAITS, RUNS)),
        replace(OPEN, marks=(replace(WAITS, at=1003.0), RUNS)),
        replace(OPEN, marks=(replace(WAITS, at=1003.0), replace(RUNS, at=1130.0)), settled_at=1130.0),
    ]
    assert result(Parts(PLAN, steps), yes=True, wait=5.0) == 0
    printed = capsys.readouterr().out.splitlines()[-3:]
    assert [line[8:] for line in printed] == [
        "  Requeue job 88 of video-2b: done: requeued",
        "  Requeue job 88 of video-2b: it is pending again",
        "  Requeue job 88 of video-2b: it starts anew",
    ]


class Steps:
    """A watcher that sees each State after the other."""

    def __init__(self, *records: Record) -> None:
        self.state = State()
        self._coming = [State(actions={one.action.id: one}) for one in records]

    def wait_for(self, condition: Callable[[State], bool], timeout: float) -> bool:
        while self._coming:
            self.state = self._coming.pop(0)
            if condition(self.state):
                return True
        return False


def test_what_becomes_known_in_between_is_reported_too() -> None:
    """The status file of the training loop may be read after the queue."""
    waits, obeys = replace(WAITS, at=1003.0), Milestone("the training loop obeys", 1002.0)
    last = replace(OPEN, marks=(obeys, waits, replace(RUNS, at=1130.0)), settled_at=1130.0)
    printed: list[str] = []
    assert follow(Steps(OPEN, replace(OPEN, marks=(waits, RUNS)), last), [REQUEUE], 5.0, 5.0, printed.append) == 0
    assert [line.rpartition(": ")[2] for line in printed] == [
        "requeued", "it is pending again", "the training loop obeys", "it starts anew",
    ]  # fmt: skip


UNSHOWN = "; Slurm has not shown yet whether and why job 88 is pending"


def test_a_training_loop_that_stops_is_no_restart(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VERB, "requeue", VERB["requeue"]._replace(first_effect=0.05))
    obeys = Milestone("the training loop obeys", 1002.0)
    assert result(Parts(PLAN, [replace(OPEN, marks=(obeys, WAITS, RUNS))]), yes=True) == 3
    assert capsys.readouterr().out.endswith(f": still to come: it is pending again, it starts anew{UNSHOWN}\n")


def test_what_does_not_follow_in_time_is_not_done(capsys: pytest.CaptureFixture[str]) -> None:
    late = replace(OPEN, marks=(replace(WAITS, at=1003.0), RUNS))
    assert result(Parts(PLAN, [late]), yes=True, wait=0.05) == 3
    assert capsys.readouterr().out.endswith(f"  Requeue job 88 of video-2b: still to come: it starts anew{UNSHOWN}\n")
    missed = replace(OPEN, marks=(replace(WAITS, missed="it ended instead"),), settled_at=1009.0)
    assert result(Parts(PLAN, [missed]), yes=True, wait=5.0) == 1
    assert capsys.readouterr().out.endswith("  Requeue job 88 of video-2b: it is pending again: no, it ended instead\n")


def test_a_requeue_without_a_restart_is_not_done_however_quietly_scontrol_ended(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --wait too: scontrol does nothing and reports no error if the job has ended meanwhile."""
    monkeypatch.setitem(VERB, "requeue", VERB["requeue"]._replace(first_effect=0.05))
    quiet = replace(OPEN, outcome="scontrol requeue ended without an error message")
    assert result(Parts(PLAN, [replace(quiet, marks=(WAITS, RUNS))]), yes=True) == 3
    printed = capsys.readouterr().out
    assert printed.endswith(
        f"  Requeue job 88 of video-2b: still to come: it is pending again, it starts anew{UNSHOWN}\n"
    )
    ended = replace(WAITS, missed="nothing happened: it had ended before")
    assert result(Parts(PLAN, [replace(quiet, marks=(ended, RUNS), settled_at=1040.0)]), yes=True) == 1
    assert capsys.readouterr().out.endswith(f"  Requeue job 88 of video-2b: it is pending again: no, {ended.missed}\n")
    seen = replace(quiet, marks=(replace(WAITS, at=1015.0), replace(RUNS, at=1130.0)))
    assert result(Parts(PLAN, [seen]), yes=True) == 0
    assert "still to come" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("BeginTime", "starts in 90s (BeginTime)"),
        ("Resources", "no free nodes; expected in 90s (Resources)"),
        ("AssocGrpGRES", "(AssocGrpGRES)"),
        (None, "no reason yet"),
    ],
)
@pytest.mark.parametrize("wait", [None, 0.05])
def test_a_requeued_job_that_is_still_pending_after_the_wait_is_exit_3_with_slurms_reason(
    reason: str | None,
    words: str,
    wait: float | None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(VERB, "requeue", VERB["requeue"]._replace(first_effect=0.05))
    pending = job(88, state="PENDING", reason=reason, starts_at=100.0)
    record = replace(OPEN, action=replace(REQUEUE, job="prod/88"), marks=(replace(WAITS, at=1003.0), RUNS))
    parts = Parts(replace(PLAN, actions=(record.action,)), [record], now=state(jobs={"prod/88": pending}))
    assert result(parts, yes=True, wait=wait) == 3
    last = capsys.readouterr().out.splitlines()[-1]
    assert "still to come: it starts anew; job 88 is still pending: " in last
    assert last.endswith(words)


@pytest.mark.parametrize("verb", ["hold", "cancel", "kill", "save", "queue", "signal", "exclude", "release"])
def test_an_effect_that_is_seen_to_fail_is_no_success_without_wait_either(verb: Any) -> None:
    failed = replace(OPEN, action=replace(REQUEUE, verb=verb), marks=(Milestone("it is held", None, "it is not held"),))
    assert result(Parts(PLAN, [failed]), yes=True) == 1


def test_an_unknown_run_is_a_mistake_in_the_call_unless_the_queue_was_not_polled(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert result(Parts(PLAN), "vidoe-2b") == 2
    assert capsys.readouterr().err == (
        'trainmon-tui: no run or job is named "vidoe-2b"; did you mean "video-2b"? (runs: "video-2b"; specify a'
        " job by its id)\n"
    )
    down = Source(name="slurm:prod", kind="slurm", cluster="prod", health="down", error="no controller answers")
    assert result(Parts(PLAN, now=state(sources={"slurm:prod": down})), "vidoe-2b") == 3
    assert capsys.readouterr().err.endswith("trainmon-tui: slurm:prod: no controller answers\n")


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["requeue"], "missing argument"),
        (["queue", "r", "--count", "0"], "0 is not in the range"),
        (["save", "r", "--wait", "2"], "--wait"),
        (["kill", "r", "--count", "2"], "no such option"),
        (["explain", "last", "--ssh-config", "x"], "'--ssh-config': this command opens no SSH connection\n"),
        (["snapshot", "--ssh-config"], "'--ssh-config' requires an argument.\n"),
    ],
)
def test_a_mistake_in_the_call_is_exit_2(argv: list[str], sentence: str) -> None:
    done = trainmon(*argv)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr


def test_help_of_a_verb_imports_nothing_heavy() -> None:
    import subprocess

    from tests.trainmon.cli.test_main import HEAVY

    code = (
        "import sys; from trainmon.cli.main import run; run(['kill', '--help']); print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert {name.partition(".")[0] for name in done.stderr.split()} & set(HEAVY) == set()
