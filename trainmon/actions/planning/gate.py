"""The gate before a restart: the nodes on which a run may start again, and what a plan says of their checks. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from msgspec.structs import replace

from trainmon.actions.planning.context import PlanContext, RowPlan
from trainmon.actions.planning.jobs import nodes_to_avoid
from trainmon.actions.verbs import VERB, ask
from trainmon.analysis.retries import by_run
from trainmon.lib import Sentence, counted, group_by, joined, listed
from trainmon.model import Attempt, NodeCheck
from trainmon.slurm.commands import test_only
from trainmon.slurm.parse import read_start

LINES = 6
"""Lines of a plan about single nodes, so that a plan of 64 nodes fits a terminal."""


def start_to_ask(context: PlanContext) -> tuple[str, str, tuple[str, ...]] | None:
    """What is asked of `sbatch --test-only`: where the script of the run would start, or the one that Slurm keeps for
    the job. See ReadRequest.start."""
    is_new = context.request.verb == "queue"
    job, script = None if is_new else context.job, context.run.spec.script if is_new and context.run else None
    argv, number = test_only(job, script, nodes_to_avoid(context)), "" if job is None else str(job.number)
    return (f"{context.subject} start", number, argv) if number or script else None


def gate_nodes(context: PlanContext) -> tuple[str, ...]:
    """The nodes of the last attempt, and those that Slurm names for the next, without those that it will avoid."""
    last = [one.nodes for one in (context.job, *_attempts(context)) if one is not None][-1:]
    named = read_start(context.readback.starts.get(f"{context.subject} start", ""))
    return tuple(name for name in dict.fromkeys(chain(*last, named)) if name not in nodes_to_avoid(context))


def _attempts(context: PlanContext) -> Sequence[Attempt]:
    return by_run(context.state.attempts.values()).get(context.run.name, ()) if context.run is not None else ()


def with_gate(context: PlanContext, row: RowPlan) -> RowPlan:
    """The plan of a row with the checks of its nodes. A fault that was seen must be confirmed by typing. It refuses an
    automatic start, and with `gate = "required"` so does a check that could not be made."""
    if not row.actions or "gate" not in VERB[row.actions[0].verb].reads:
        return row
    checks, run, is_retry = tuple(_checks(context)), context.run, context.request.is_retry
    facts = [("" if number else "nodes", line) for number, line in enumerate(lines(checks))]
    bad, why = [one for one in checks if one.outcome == "fault"], "a fault was seen"
    if not bad and is_retry and run is not None and run.spec.retry.gate == "required":
        bad, why = [one for one in checks if one.outcome == "not checked"], "it could not be checked"
    nodes = " ".join(dict.fromkeys(one.node for one in bad if one.outcome == "fault" and one.node))
    subject = nodes if run is None else f"{nodes} --run {run.name}"
    hint: Sentence = ask("; keep the pending job off: {}", "exclude", subject=subject) if nodes else ""
    why = f"{why}: {_places(bad)}"
    warnings = (joined(f"{why[0].upper()}{why[1:]}", hint),) if bad else ()
    actions = [replace(one, facts=(*facts, *one.facts), warnings=(*warnings, *one.warnings)) for one in row.actions]
    row = replace(row, actions=tuple(actions), checks=checks)
    if not bad:
        return row
    if is_retry:
        refused = context.refused(why, joined("; ".join([*dict.fromkeys(one.why for one in bad)][:LINES]), hint))
        return replace(row, refusals=(*row.refusals, refused.refusal))
    typed = row.typed or (context.name if context.job is None else context.job.id)
    return replace(row, typed=typed, because="; ".join(filter(None, (row.because, why))))


def _checks(context: PlanContext) -> Iterator[NodeCheck]:
    """The checks of the nodes, whether they are all, and whether there is a checkpoint to resume from."""
    key, found = f"{context.subject} start", context.checkpoints
    checks, said = context.readback.checks.get(context.subject, ()), context.readback.starts.get(key)
    yield from checks
    unnamed = "Slurm names none" if said is not None and not read_start(said) else "" if checks else "no node is known"
    if unnamed := context.readback.errors.get(key, unnamed):
        yield NodeCheck("", f"the next nodes{context.of_run}", "not checked", unnamed)
    if found is not None and (why := found.trouble or found.error):
        had_one = any(one.last_committed_step is not None for one in _attempts(context))
        is_fault = found.trouble is not None and (found.error is None or had_one)  # before the first, it may be missing
        yield NodeCheck("", f"checkpoint{context.of_run}", "fault" if is_fault else "not checked", why)


def lines(checks: Iterable[NodeCheck]) -> Iterator[str]:
    """What the checks show: how many nodes passed, then what did not pass, the worst first."""
    of_nodes = group_by((one for one in checks if one.node and one.outcome != "not used"), lambda one: one.node)
    counts = Counter((sum(one.outcome == "passed" for one in ones), len(ones)) for ones in of_nodes.values())
    if counts:
        yield "; ".join(
            f"{counted(nodes, 'node')}: {every if many == every else f'{many} of {every}'} checks passed"
            for (many, every), nodes in counts.most_common()
        )
    worst = sorted((one for one in checks if one.why), key=lambda one: (one.outcome != "fault", one.outcome))
    groups = list(group_by(worst, lambda one: (one.outcome, one.why)).values())
    yield from (
        *(f"{ones[0].outcome}: {_places(ones)}: {ones[0].why}" for ones in groups[:LINES]),
        *([f"and {len(groups) - LINES} more, which --json lists"] if len(groups) > LINES else []),
    )


def _places(checks: Iterable[NodeCheck]) -> str:
    """`gpu-003 (Xids), gpu-007, gpu-008 (8 checks)`: without numbers that change, so that a reason is told once."""
    of_nodes = group_by(checks, lambda one: one.node)
    alike = group_by(of_nodes, lambda node: tuple(one.check for one in of_nodes[node]))
    texts = {names: ", ".join(names) if len(names) <= 3 else f"{len(names)} checks" for names in alike}
    return listed([f"{listed(nodes, 3)} ({texts[one]})" if nodes[0] else texts[one] for one, nodes in alike.items()], 4)
