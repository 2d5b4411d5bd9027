"""What is read for a plan, the last check before an act, and the menu of a row."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.trainmon.actions.cluster import (  # fmt: skip
    ANA,
    CLUSTER,
    DONE,
    KILL,
    NOW,
    RUN,
    RUNNING,
    SAVE,
    WAITING,
    ask,
    only,
    planned,
    readback,
    source,
    stat,
    state,
)
from trainmon.actions import planning as actions
from trainmon.actions.planning import Offer, Readback, ReadRequest
from trainmon.model import SchedulerNode, Switch, Verb

UNARMED = stat(KILL, exists=False)
HELD = replace(WAITING, priority=0, reason="JobHeldUser")


def test_switches_are_checked_where_the_files_are_and_slurm_is_left_in_peace() -> None:
    for verb in ("save", "kill", "unkill", "unsave"):
        assert actions.reads_for_plan(ask(verb), state(), readback()) == (
            ReadRequest("login", "prod", switches=(KILL, SAVE)),
        )


def test_a_requeue_reads_the_queue_its_job_and_the_kill_switch() -> None:
    start = ("llm start", "91", ("sbatch", "--test-only", "--nodes=2"))
    look = ReadRequest("login", "prod", users=(), jobs=(("prod/88_3", "88_3"),), switches=(KILL,), start=start)
    assert actions.reads_for_plan(ask("requeue"), state(), readback()) == (look,)


def test_a_signal_reads_the_steps_too() -> None:
    (look,) = actions.reads_for_plan(ask("signal", "prod/88_3"), state(), readback())
    assert look.jobs == (("prod/88_3", "88_3"),)
    assert look.steps == (("prod/88_3", "88_3", str(RUNNING.number)),)


def test_the_elements_that_wait_are_requested_by_the_number_of_their_array() -> None:
    (look,) = actions.reads_for_plan(ask("cancel", "prod/88_[]"), state(), readback())
    assert look.jobs == (("prod/88_[]", "88"),)


def test_a_job_that_only_the_queue_knows_is_read_once_it_is_known() -> None:
    newer = replace(RUNNING, id="99", number=99, array=None, tasks=None)
    before = state(DONE)
    assert actions.reads_for_plan(ask("requeue"), before, readback())[0].jobs == (("prod/80", "80"),)
    assert actions.reads_for_plan(ask("requeue"), before, readback(newer))[0].jobs == (("prod/99", "99"),)


def test_a_job_of_the_command_line_is_requested_by_its_key() -> None:
    assert actions.reads_for_plan(ask("cancel", "prod/4711"), state(), readback()) == (
        ReadRequest("login", "prod", jobs=(("prod/4711", "4711"),)),
    )
    assert actions.reads_for_plan(ask("cancel", "nowhere/4711"), state(), readback()) == ()


def test_a_node_reads_the_jobs_that_wait() -> None:
    (look,) = actions.reads_for_plan(ask("exclude", "n1"), state(), readback())
    assert (look.users, look.jobs) == ((), (("prod/88_[]", "88"),))


def test_where_nothing_may_be_done_nothing_is_read() -> None:
    assert actions.reads_for_plan(ask("kill"), state(read_only=True), readback()) == ()


def test_what_is_as_it_was_shown_is_done() -> None:
    action = only(planned("requeue"))
    assert actions.reads_before(action) == ReadRequest("login", "prod", jobs=(("prod/88_3", "88_3"),), switches=(KILL,))
    assert actions.recheck(action, readback(RUNNING, switches=stat(KILL, exists=False))) is None


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (readback(gone=frozenset({"prod/88_3"}), switches=UNARMED), "Slurm no longer knows job 88_3"),
        (readback(errors={"prod/88_3": "login: no answer"}, switches=UNARMED), "login: no answer"),
        (readback(switches=UNARMED), "job 88_3 has changed since the plan"),
        (readback(replace(RUNNING, state="PENDING"), switches=UNARMED), "job 88_3 is PENDING now, no longer running"),
        (
            readback(replace(RUNNING, state="COMPLETED"), switches=UNARMED),
            "job 88_3 is COMPLETED now, no longer running",
        ),
        (readback(replace(RUNNING, user="ben"), switches=UNARMED), "job 88_3 is ben's now: another job has its number"),
        (readback(replace(RUNNING, restarts=1), switches=UNARMED), "job 88_3 was requeued meanwhile (restart 1)"),
        (
            readback(replace(RUNNING, restarts=1, submitted_at=NOW - 5), switches=UNARMED),
            "job 88_3 was requeued meanwhile (restart 1)",
        ),
        (
            readback(replace(RUNNING, submitted_at=NOW - 5), switches=UNARMED),
            "job 88_3 is another job now: its number was reused",
        ),
        (readback(RUNNING), "it is no longer known whether the kill switch is armed: it was not read"),
        (
            readback(RUNNING, switches=stat(KILL, error="no permission"), errors={f"login:{KILL}": "no permission"}),
            "it is no longer known whether the kill switch is armed: no permission",
        ),
        (
            readback(RUNNING, switches=stat(KILL, exists=True, by="ben")),
            "the kill switch has been armed meanwhile by ben",
        ),
    ],
)
def test_what_is_no_longer_as_it_was_shown_is_not_done(seen: Readback, why: str) -> None:
    refusal = actions.recheck(only(planned("requeue")), seen)
    assert refusal is not None
    assert refusal.why == why


def test_an_array_that_moved_on_is_not_the_one_that_was_shown() -> None:
    action = only(planned("cancel", "prod/88_[]"))
    moved = replace(WAITING, id="88_[5-10%1]", tasks="5-10%1")
    refusal = actions.recheck(action, readback(moved))
    assert refusal is not None
    assert refusal.why == "88_[4-10%1] has become 88_[5-10%1] meanwhile"


def test_a_job_that_completes_is_still_one_that_runs() -> None:
    assert actions.recheck(only(planned("cancel")), readback(replace(RUNNING, state="COMPLETING"))) is None


@pytest.mark.parametrize("verb", ["kill", "save"])
@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (readback(gone=frozenset({"prod/88_3"})), "Slurm no longer knows job 88_3"),
        (readback(replace(RUNNING, state="COMPLETED")), "job 88_3 is COMPLETED now, no longer running"),
        (readback(replace(RUNNING, restarts=1)), "job 88_3 was requeued meanwhile (restart 1)"),
    ],
)
def test_a_switch_for_a_job_that_is_over_is_not_left_for_the_next_one(verb: Verb, seen: Readback, why: str) -> None:
    refusal = actions.recheck(only(planned(verb)), seen)
    assert refusal is not None
    assert refusal.why == why


def test_a_switch_file_needs_no_slurm_and_says_what_could_not_be_checked() -> None:
    action, silent = only(planned("kill")), readback(errors={"prod/88_3": "login: squeue did not answer"})
    assert actions.reads_before(action) == ReadRequest("login", "prod", jobs=(("prod/88_3", "88_3"),))
    assert actions.recheck(action, silent) is None
    assert actions.unchecked(action, silent) == (
        "could not check whether job 88_3 still runs: login: squeue did not answer"
    )
    assert actions.unchecked(action, readback(RUNNING)) is None
    assert actions.recheck(only(planned("kill", of=state(WAITING))), readback()) is None


def test_a_list_of_nodes_that_another_has_changed_is_not_written_over() -> None:
    action = only(planned("exclude", "n1"))
    assert actions.recheck(action, readback(WAITING)) is None
    refusal = actions.recheck(action, readback(replace(WAITING, excluded=("n7",))))
    assert refusal is not None
    assert refusal.why == "job 88_[4-10%1] excludes n7 now: its list was changed meanwhile"


def test_a_node_that_another_has_drained_keeps_its_reason() -> None:
    operator = {"prod": replace(CLUSTER, may_operate=True)}
    drain = planned("exclude", "n1", of=state(clusters=operator)).actions[1]
    assert actions.reads_before(drain) == ReadRequest("login", "prod", nodes=("n1",))
    node = SchedulerNode(name="n1", cluster="prod", state="MIXED")
    assert actions.recheck(drain, readback(nodes={"n1": node})) is None
    theirs = replace(node, flags=("DRAIN",), reason="RMA 4711")
    for seen, why in (
        (readback(nodes={"n1": theirs}), "n1 is drained already: RMA 4711"),
        (readback(errors={"prod/n1": "login: no answer"}), "login: no answer"),
        (readback(gone=frozenset({"prod/n1"})), "sinfo does not list n1"),
    ):
        refusal = actions.recheck(drain, seen)
        assert refusal is not None
        assert refusal.why == why


def test_another_is_not_queued_twice_nor_under_a_kill_switch() -> None:
    action = only(planned("queue"))
    assert actions.reads_before(action) == ReadRequest("login", "prod", users=(), switches=(KILL,))
    moved = replace(WAITING, id="88_[5-10%1]", tasks="5-10%1")
    started = replace(RUNNING, id="88_4", number=96, tasks="4")
    assert actions.recheck(action, readback(started, moved, DONE, switches=UNARMED)) is None
    theirs = replace(WAITING, id="99", number=99, array=None, tasks=None, user="ben")
    for seen, why in (
        (
            readback(theirs, switches=UNARMED),
            "job 99 of the run has been queued meanwhile by ben: both would run at once",
        ),
        (readback(switches=stat(KILL, exists=True, by="ben")), "the kill switch has been armed meanwhile by ben"),
        (readback(switches=UNARMED, errors={"prod": "login: no answer"}), "login: no answer"),
    ):
        refusal = actions.recheck(action, seen)
        assert refusal is not None
        assert refusal.why == why
    assert actions.recheck(action, readback(replace(theirs, name="another"), switches=UNARMED)) is None


def offers(kind: str, subject: str, **fields: object) -> dict[Verb, Offer]:
    known = state(**fields)
    return {offer.verb: offer for offer in actions.offered(known, [(kind, subject)], NOW)}


def test_the_menu_of_a_run_says_what_may_be_done_and_why_not() -> None:
    menu = offers("run", "llm")
    assert [verb for verb, offer in menu.items() if offer.refusal is None] == [
        "save", "kill", "requeue", "cancel", "hold", "signal", "queue",
    ]  # fmt: skip
    reasons = {verb: offer.refusal.why for verb, offer in menu.items() if offer.refusal is not None}
    assert reasons == {
        "unkill": "no switch is armed", "release": "no job of llm is held",
        "stacks": "it is not known which processes are the ranks of llm: its nodes are not known",
    }  # fmt: skip


def test_the_menu_offers_what_is_armed() -> None:
    run = replace(RUN, save=Switch(path=SAVE, exists=True))
    menu = offers("run", "llm", run=run)
    assert menu["unkill"].refusal is None
    assert menu["save"].refusal is not None


def test_the_menu_of_a_node_and_of_a_job() -> None:
    assert offers("node", "n1")["exclude"].refusal is None
    assert offers("job", "prod/80")["cancel"].refusal is not None
    assert offers("job", "prod/88_3")["cancel"].refusal is None


def test_read_only_greys_all() -> None:
    for kind, subject in (("run", "llm"), ("job", "prod/88_3"), ("node", "n1")):
        offered = offers(kind, subject, read_only=True)
        assert offered
        assert all(offer.refusal is not None for offer in offered.values())


def test_while_slurm_is_silent_the_menu_keeps_the_switches() -> None:
    down = {"slurm:prod": source("slurm:prod", health="down"), "node:login": source("node:login")}
    menu = offers("run", "llm", sources=down)
    assert [verb for verb, offer in menu.items() if offer.refusal is None] == ["save", "kill"]


def test_h_holds_what_is_free_and_releases_what_is_held() -> None:
    assert actions.hold_or_release(state(), ("llm",)) == "hold"
    assert actions.hold_or_release(state(RUNNING, HELD), ("llm",)) == "release"
    assert actions.hold_or_release(state(RUNNING, HELD), ("prod/88_3",)) == "hold"
    assert actions.hold_or_release(state(), ("nothing",)) == "hold"


def test_the_same_world_gives_the_same_plan() -> None:
    once, again = (actions.plan(ask("cancel"), state(), readback(), ANA, NOW) for _ in range(2))
    assert once == again
