"""A program with one more verb: one record in the table, and one function that plans it. Run by test_verbs.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainmon.actions import verbs

if TYPE_CHECKING:
    from trainmon.actions.planning.context import PlanContext
    from trainmon.model import RowPlan

NUDGE = verbs.VerbSpec(
    "nudge",  # type: ignore[arg-type]
    f"{__name__}:nudge",
    "Nudge",
    target="job",
    menu="Nudge its job",
    key="D",
    help="nudge the job, so that it goes on",
    usage="RUN|JOB...",
    summary="Nudge jobs.",
    reads=("job",),
    is_of_one_job=True,
)


def nudge(context: PlanContext) -> RowPlan:
    """Nudge a job."""
    from trainmon.actions.planning.context import action
    from trainmon.model import Execute, RowPlan

    job = context.check_job(context.job)
    made = action(context, Execute(("nudge", job.target)), f"Nudge job {job.id}{context.of_run}", job=job)
    return RowPlan(actions=(made,))


def add() -> None:
    """Add the verb to the table, before anything has read it."""
    verbs.VERBS += (NUDGE,)
    verbs.VERB["nudge"] = NUDGE


def facts() -> dict[str, Any]:
    """What the parts of the program know of the verb."""
    from tests.docs import keys
    from tests.trainmon.actions.cluster import NOW, RUNNING, done, planned, readback, state
    from tests.trainmon.actions.verification.records import after
    from trainmon.actions.planning import offered, reads_for_plan
    from trainmon.cli.act.targets import resolve
    from trainmon.cli.commands import COMMANDS, GROUPS
    from trainmon.lib import say
    from tui.keys import active_keys
    from tui.modals.menu import entries
    from tui.screens.help import help_rows
    from tui.views.actions import action_request, commands, find_commands

    plan = planned("nudge", seen=readback(RUNNING))  # type: ignore[arg-type]
    (action,) = plan.actions
    request = action_request("nudge", [("run", "llm")], state(), NOW)  # type: ignore[arg-type]
    return {
        "command": COMMANDS["nudge"].short_help,
        "group": COMMANDS["nudge"] in GROUPS["Act on runs, jobs and nodes"],
        "subject": resolve("nudge", ("88_3",), state()),  # type: ignore[arg-type]
        "key": [key.cap for key in active_keys("runs") if key.id == "act.nudge"],
        "docs": "| `D` | nudge the job, so that it goes on |" in keys(),
        "help": any("nudge the job" in row.text for row in help_rows("runs")),
        "palette": find_commands("nudge", commands("runs", state(), ()))[0].cap,
        "menu": [one.title for one in offered(state(), [("run", "llm")], NOW) if one.verb == "nudge"],
        "menu lines": [one.title for one in entries([("run", "llm")], state(), NOW) if one.verb == "nudge"],
        "request": request.subjects if not isinstance(request, str) else request,
        "reads": [read.jobs for read in reads_for_plan(plan.request, state(), readback())],
        "plan": (action.title, action.operation.argv),  # type: ignore[union-attr]
        "button": verbs.VERB["nudge"].button_text(3),
        "sentence": say(verbs.ask("{} nudges it", "nudge"), "command"),  # type: ignore[arg-type]
        "settled": after(done(action), 5).settled_at is not None,
    }


if __name__ == "__main__":
    import json

    add()
    print(json.dumps(facts()))
