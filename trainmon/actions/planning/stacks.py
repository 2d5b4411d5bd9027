"""Plans to read the stacks of the ranks of a run. Pure."""

from __future__ import annotations

from trainmon.actions.planning.context import PlanContext, action
from trainmon.analysis.attempts import rank_processes, why_no_ranks
from trainmon.lib import counted, group_by, listed, ranges, spans_text
from trainmon.model import RankWay, ReadStacks, RowPlan

WAYS = {
    "py-spy": "the py-spy of their environment: `py-spy dump --nonblocking`, at most 10s each",
    "signal": "a signal on which trainmon_hooks writes the stack of the main thread into memory",
}

WARNINGS = {
    "py-spy": "py-spy does not stop the process and reads its memory: a stack may be inconsistent. A process that is "
    "stopped afterwards, and was not before, is continued.",
    "signal": "A signal may end a system call of the trainer early, such as a sleep. It is sent only to a process that "
    "catches it.",
}


def stacks(context: PlanContext) -> RowPlan:
    """Read the stacks of all ranks that can be asked.

    Raises:
        Refused: when no rank can be asked.
    """
    run = context.run
    if run is None or not rank_processes(run, context.state):
        raise context.refused(why_no_ranks(context.name, context.state))
    if run.name in context.readback.errors:
        raise context.refused(context.readback.errors[run.name])
    found = context.readback.stacks.get(run.name)
    ready, silent = [one for one in found or () if one.way], [one for one in found or () if not one.way]
    whys = [f"{_ranks(ones)}: {why}" for why, ones in group_by(silent, lambda one: one.why).items()]
    if found is not None and not ready:
        raise context.refused(
            f"no rank can be asked: {listed(whys)}",
            "install py-spy in the environment of the trainer, or use trainmon_hooks",
        )
    ways = group_by(ready, lambda one: one.way)
    asked = (
        (node, f"{_ranks(ones)}, pids {spans_text(ranges(sorted(one.pid for one in ones)))}")
        for node, ones in group_by(ready, lambda one: one.node).items()
    )
    made = action(
        context,
        ReadStacks(
            (), shown="; ".join(f"{_ranks(ones)} by {WAYS[way]}" for way, ones in ways.items()), ranks=tuple(ready)
        ),
        f"Read the stacks of {counted(len(ready), 'rank')} of {run.name}",
        facts=(*asked, *(("not read", why) for why in whys)),
        consequences=(
            "Three times in 6s. Names of files and functions leave the node, but no arguments and no values.",
            "The page of the run shows the result.",
        ),
        warnings=tuple(WARNINGS[way] for way in ways),
    )
    return RowPlan(actions=(made,))


def _ranks(ones: list[RankWay]) -> str:
    return f"{'ranks' if len(ones) > 1 else 'rank'} {spans_text(ranges(sorted(one.rank for one in ones)))}"
