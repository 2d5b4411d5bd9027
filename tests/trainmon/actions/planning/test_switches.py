"""Plans with switch files."""

from __future__ import annotations

from msgspec.structs import replace

from tests.trainmon.actions.cluster import (  # fmt: skip
    DONE,
    KILL,
    NOW,
    RUN,
    RUNNING,
    SAVE,
    SPEC,
    WAITING,
    only,
    planned,
    readback,
    refused,
    source,
    stat,
    state,
)
from trainmon.actions import planning as actions
from trainmon.lib import say
from trainmon.model import CreateFile, RemoveFile, Switch

ARMED = Switch(path=KILL, exists=True, armed_at=NOW - 240, by="ben", why="trainmon-tui kill by ben (aaaaaaaaaaaa)")


def test_a_save_shows_everything_before_it_is_done() -> None:
    action = only(planned("save"))
    assert action.title == "Save a checkpoint of llm now"
    assert action.facts == (
        ("trainer listens", "not known: no status file yet; this save will show it"),
        ("last step", "12,880, 6s ago"),
        ("last checkpoint", "step 12,000, 14m ago; 880 steps since"),
        ("run", "llm"),
        ("job", "88_3 (RUNNING on 2 nodes)"),
        ("cluster", "prod"),
        ("owner", "ana"),
        ("host", "login"),
        ("file", SAVE),
    )
    assert action.consequences == (
        "The trainer consumes the switch (removes the file) at its next iteration (about 4s) and saves "
        "(usually about 90s); training goes on.",
        "trainmon-tui then reports when the file appears, is consumed, and a new checkpoint is committed.",
    )
    assert (action.warnings, action.host, action.step, action.checkpoint) == ((), "login", 12_880, 12_000)


def test_the_file_says_who_from_where_when_why_and_which_action() -> None:
    action = only(planned("save"))
    assert action.operation == CreateFile(
        SAVE, f"trainmon-tui save by ana from laptop at 2026-11-21T12:00:00Z: loss spike ({action.id})"
    )
    assert len(action.id) == 12
    assert int(action.id, 16) >= 0


def test_what_a_person_writes_stays_one_line() -> None:
    operation = only(planned("kill", why="first\nsecond\x1b[31m" + "x" * 1000)).operation
    assert isinstance(operation, CreateFile)
    assert operation.text.isprintable()
    assert len(operation.text) < 500


def test_two_plans_have_two_ids_and_the_same_plan_one() -> None:
    assert only(planned("kill")).id == only(planned("kill")).id
    assert only(planned("kill")).id != only(planned("save")).id
    assert only(planned("kill")).id != only(planned("kill", requested_at=NOW + 1)).id


def test_a_kill_says_that_it_stays_and_what_it_burns() -> None:
    action = only(planned("kill"))
    assert action.consequences == (
        "The trainer saves (usually about 90s) and exits at its next iteration (about 4s).",
        "The switch stays until someone removes it (U); until then a requeue (R) is refused.",
        "While it is armed, it also ends the 7 pending jobs and array tasks (88_[4-10%1]): "
        "each starts, reads the file and exits at once.",
    )


def test_a_kill_burns_later_jobs_even_where_none_waits() -> None:
    action = only(planned("kill", of=state(RUNNING)))
    assert action.consequences[2] == "While it is armed, every job of the run that starts exits at once."


def test_a_silent_run_will_not_read_it_and_c_is_offered() -> None:
    silent = replace(RUN, progress=replace(RUN.progress, at=NOW - 13))
    for verb in ("kill", "save"):
        action = only(planned(verb, of=state(run=silent)))
        assert action.warnings == (
            "No step for 13s. A hung trainer will not see the switch; press C to cancel the job.",
        )


def test_a_run_that_saves_or_evaluates_is_not_called_hung() -> None:
    busy = replace(RUN, verdict="evaluating", progress=replace(RUN.progress, at=NOW - 300))
    assert only(planned("save", of=state(run=busy))).warnings == ()


def test_what_the_verdict_knows_is_reported_as_well() -> None:
    hung = replace(RUN, verdict="hung", progress=replace(RUN.progress, at=None))
    assert "No step is known." in only(planned("kill", of=state(run=hung))).warnings[0]


def test_a_run_without_a_running_job_leaves_it_to_the_next() -> None:
    action = only(planned("kill", of=state(WAITING, DONE)))
    assert action.warnings == ("None of its jobs runs now: the next job reads the file first.",)
    assert action.job is None


def test_one_that_is_armed_is_refused_with_who_and_since() -> None:
    run = replace(RUN, kill=ARMED, save=Switch(path=SAVE, exists=True, armed_at=NOW - 60, by="ana"))
    one = refused(planned("kill", of=state(run=run)))
    assert one.why == f"{KILL} was already armed 4m ago by ben (“trainmon-tui kill by ben (aaaaaaaaaaaa)”)"
    assert one.hint == "U removes it"
    two = planned("save", of=state(run=run))
    assert refused(two).why == f"{SAVE} was already armed 1m ago by ana; the trainer has not consumed it yet"
    assert say(two.refusals[0].hint, "command") == "`unsave` removes it", "`unkill` takes a kill switch only"


def test_what_was_read_just_now_counts_more_than_the_last_look() -> None:
    seen = readback(switches=stat(KILL, exists=True, armed_at=NOW - 30, by="ben", why="mine"))
    assert refused(planned("kill", seen=seen)).why == f"{KILL} was already armed 30s ago by ben (“mine”)"
    gone = readback(switches=stat(KILL, exists=False))
    assert only(planned("kill", of=state(run=replace(RUN, kill=ARMED)), seen=gone)).operation == CreateFile(
        KILL,
        only(planned("kill")).operation.text,
    )


def test_a_run_without_a_switch_is_reported_how_to_have_one() -> None:
    bare = replace(RUN, spec=replace(SPEC, save_switch=None), save=None)
    one = refused(planned("save", of=state(run=bare)))
    assert one.why == "no save switch is configured for llm"
    assert one.hint == "set save_switch in the [[run]] of llm to the file that its trainer looks for"


def test_a_directory_that_cannot_be_seen_is_refused_with_a_message() -> None:
    run = replace(RUN, kill=Switch(path=KILL, error="its directory is missing"))
    assert refused(planned("kill", of=state(run=run))).why == f"{KILL}: its directory is missing"
    seen = readback(errors={f"login:{KILL}": "login has not answered in 10s"})
    assert refused(planned("kill", seen=seen)).why == f"{KILL}: login has not answered in 10s"


def test_no_switch_needs_slurm() -> None:
    down = {
        "slurm:prod": source("slurm:prod", health="down", error="no controller"),
        "node:login": source("node:login"),
    }
    for verb in ("save", "kill"):
        assert only(planned(verb, of=state(sources=down))).verb == verb


def test_a_job_s_row_means_its_run() -> None:
    action = only(planned("save", "prod/88_3"))
    assert (action.run, action.subject) == ("llm", "prod/88_3")
    stranger = replace(RUNNING, id="99", number=99, array=None, tasks=None, name="other")
    one = refused(planned("save", "prod/99", of=state(stranger)))
    assert one.why == "it belongs to no run; only runs have switches"


def test_a_run_and_its_job_marked_together_are_one_action() -> None:
    assert len(planned("kill", "llm", "prod/88_3").actions) == 1


def test_two_runs_are_two_actions_and_a_shared_file_is_reported() -> None:
    other = replace(RUN, spec=replace(SPEC, name="vlm", job="vlm", save_switch="/fsx/vlm/save"))
    both = state(runs={"llm": RUN, "vlm": other})
    plan = planned("save", "llm", "vlm", of=both)
    assert [action.run for action in plan.actions] == ["llm", "vlm"]
    assert only(planned("kill", of=both)).warnings[-1] == "The same file is also a switch of vlm."


def test_a_save_of_a_run_that_is_about_to_end_says_so() -> None:
    action = only(planned("save", of=state(run=replace(RUN, kill=ARMED))))
    assert action.warnings[0].startswith("It is about to end: kill switch, armed 4m ago by ben")


def test_u_removes_the_only_one_if_it_is_still_the_one_seen() -> None:
    seen = readback(switches=stat(KILL, exists=True, armed_at=NOW - 240, by="ben", why="x", mark="7 2 1795262160 ben"))
    action = only(planned("unkill", seen=seen))
    assert action.operation == RemoveFile(KILL, NOW - 240, "7 2 1795262160 ben")
    assert action.title == "Remove the kill switch of llm"
    assert ("armed", "kill switch, armed 4m ago by ben: “x”") in action.facts


def test_a_file_that_somebody_else_wrote_is_shown_and_removed_by_its_path() -> None:
    content = ("export RUN=7", *(f"line {number}" for number in range(20)))
    seen = readback(
        switches=stat(KILL, exists=True, armed_at=NOW - 240, by="ben", why="export RUN=7", content=content, mark="7")
    )
    plan = planned("unkill", seen=seen)
    assert (plan.typed, plan.because) == (KILL, f"{KILL} was not written by trainmon-tui")
    facts = only(plan).facts
    first = facts.index(("content", "export RUN=7"))
    assert facts[first + 1 : first + 9] == (*(("", f"line {number}") for number in range(7)), ("", "…"))
    empty = planned("unkill", seen=readback(switches=stat(KILL, exists=True, armed_at=NOW - 240, by="ben")))
    assert (empty.typed, ("content", "empty") in only(empty).facts) == (KILL, True)
    save = planned("unsave", seen=readback(switches=stat(SAVE, exists=True, by="ben", why="x", content=("x",))))
    assert (save.typed, ("content", "x") in only(save).facts) == (SAVE, True)


def test_a_file_that_trainmon_wrote_is_removed_without_typing() -> None:
    ours = "trainmon-tui {} by ben from laptop at 2026-11-21T12:00:00Z: (aaaaaaaaaaaa)"
    kill = planned("unkill", seen=readback(switches=stat(KILL, exists=True, why=ours.format("kill"))))
    save = planned("unsave", seen=readback(switches=stat(SAVE, exists=True, why=ours.format("save"))))
    for plan in (kill, save):
        assert (plan.typed, plan.because) == (None, "")
        assert "content" not in dict(only(plan).facts)


def test_what_is_no_plain_file_is_armed_for_every_plan() -> None:
    link = stat(
        KILL, exists=True, mark="m", armed_at=NOW - 60, by="ben with a FIFO", content=("a FIFO: its text is not read",)
    )
    seen = readback(RUNNING, switches=link)
    assert refused(planned("kill", seen=seen)).why == f"{KILL} was already armed 1m ago by ben with a FIFO"
    plan = planned("unkill", seen=seen)
    assert ("content", "a FIFO: its text is not read") in only(plan).facts
    assert only(plan).operation == RemoveFile(KILL, NOW - 60, "m")
    assert plan.typed == KILL
    assert "kill switch, armed 1m ago by ben with a FIFO" in refused(planned("requeue", seen=seen)).why


def test_a_directory_is_left_to_a_person() -> None:
    by, content = "ben with a directory", ("a directory: its text is not read",)
    folder = replace(RUN, kill=Switch(path=KILL, exists=True, armed_at=NOW - 60, by=by))
    hint = f"a person must remove the directory {KILL}"
    for of, seen in (
        (state(run=folder), None),
        (state(), readback(RUNNING, switches=stat(KILL, exists=True, mark="m", by=by, content=content))),
    ):
        plans = [planned(verb, of=of, seen=seen) for verb in ("unkill", "kill", "requeue")]
        assert [refused(plan).hint for plan in plans] == [hint, hint, hint]
        assert refused(plans[0]).why == f"{KILL} is a directory"
    meanwhile = actions.recheck(only(planned("requeue")), readback(RUNNING, switches=stat(KILL, exists=True, by=by)))
    assert meanwhile is not None
    assert meanwhile.hint == hint
    save = Switch(path=SAVE, exists=True, armed_at=NOW - 60, by="ana")
    plan = planned("unkill", of=state(run=replace(folder, save=save)))
    assert only(plan).operation == RemoveFile(SAVE, NOW - 60), "no choice that must fail"
    chosen = planned("unkill", of=state(run=replace(folder, save=save)), switch=KILL)
    assert refused(chosen).hint == hint


def test_a_dangling_link_is_reported_as_such_and_not_as_an_armed_switch() -> None:
    error = "a dangling symbolic link to /old/kill: it does not arm the switch"
    link = readback(switches=stat(KILL, exists=False, error=error), errors={f"login:{KILL}": error})
    watched = state(run=replace(RUN, kill=Switch(path=KILL, exists=False, error=error)))
    hint = f"remove the link first: rm {KILL} on login"
    for seen, of in ((link, state()), (None, watched)):
        undo, kill = refused(planned("unkill", of=of, seen=seen)), refused(planned("kill", of=of, seen=seen))
        assert (undo.why, undo.hint) == (f"{KILL} is {error}", hint)
        assert (kill.why, kill.hint) == (f"{KILL}: {error}", hint)
    assert f"Its kill switch is {error}." in only(planned("requeue", of=watched)).warnings


def test_u_asks_which_where_both_are_armed() -> None:
    run = replace(RUN, kill=ARMED, save=Switch(path=SAVE, exists=True, armed_at=NOW - 60, by="ana"))
    plan = planned("unkill", of=state(run=run))
    assert plan.actions == plan.refusals == ()
    assert [path for path, _ in plan.choices] == [KILL, SAVE]
    assert plan.choices[1][1] == "save switch, armed 1m ago by ana"
    assert [path for path, _ in planned("unsave", of=state(run=run)).choices] == [SAVE, KILL]
    chosen = only(planned("unkill", of=state(run=run), switch=SAVE))
    assert (chosen.verb, chosen.operation) == ("unsave", RemoveFile(SAVE, NOW - 60))


def test_a_command_takes_back_what_it_names_and_nothing_else() -> None:
    save = Switch(path=SAVE, exists=True, armed_at=NOW - 60, by="ana")
    only_kill, both = replace(RUN, kill=ARMED), replace(RUN, kill=ARMED, save=save)
    one = refused(planned("unsave", of=state(run=only_kill), is_exact=True))
    assert one.why.startswith("no save switch is armed, but kill switch, armed 4m ago by ben")
    assert only(planned("unkill", of=state(run=both), is_exact=True)).title == "Remove the kill switch of llm"
    assert only(planned("unsave", of=state(run=both), is_exact=True)).title == "Remove the save switch of llm"
    chosen = planned("unsave", of=state(run=both), is_exact=True, switch=KILL)
    assert only(chosen).title == "Remove the kill switch of llm"
    assert refused(planned("unkill", is_exact=True)).why == "no switch is armed"


def test_u_without_an_armed_switch_says_so() -> None:
    assert refused(planned("unkill")).why == "no switch is armed"
    blind = replace(RUN, kill=Switch(path=KILL, error="no permission in its directory"))
    why = refused(planned("unkill", of=state(run=blind))).why
    assert why == "it is not known whether a switch is armed: no permission in its directory"


def test_the_clock_of_the_host_does_not_change_the_age() -> None:
    skewed = replace(ARMED, armed_at=NOW - 240)
    seen = readback(switches=stat(KILL, exists=True, armed_at=NOW - 240 + 3600, by="ben"))
    assert (
        "armed 4m ago"
        in dict(only(planned("unkill", of=state(run=replace(RUN, kill=skewed)), seen=seen)).facts)["armed"]
    )


def test_read_only_refuses_everything() -> None:
    for verb in ("save", "kill", "unkill", "requeue", "cancel", "hold", "release", "signal", "queue", "exclude"):
        one = refused(planned(verb, of=state(read_only=True)))
        assert one.why == "read-only: nothing is changed from here"


def test_files_are_touched_where_somebody_answers() -> None:
    down = {"slurm:prod": source("slurm:prod"), "node:login": source("node:login", health="down")}
    up = down | {"node:n1": source("node:n1")}
    assert only(planned("save", of=state(sources=up))).host == "n1"
    assert only(planned("save", of=state(sources=down))).host == "login"
    nowhere = replace(RUN, spec=replace(SPEC, nodes=()), log=None)
    one = refused(planned("save", of=state(run=nowhere, clusters={})))
    assert one.why == f"no known host sees {SAVE}"
