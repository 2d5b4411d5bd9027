"""Plans: from an ActionRequest, the State and what was read just now; and the last check before an action. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Literal

import msgspec
from msgspec.structs import replace

from trainmon.actions.planning.context import (
    Actor,
    PlanContext,
    Readback,
    ReadRequest,
    Refused,
    contexts_of,
    retry_of,
)
from trainmon.actions.planning.jobs import is_held, nodes_to_avoid
from trainmon.actions.verbs import VERB, VERBS, ask, function
from trainmon.analysis.retries import by_run
from trainmon.analysis.runs import writers
from trainmon.lib import Instant, Sentence, counted, group_by, joined, listed
from trainmon.model import Action, ActionRequest, Attempt, Expected, Job, NodeCheck, Plan, Refusal, RowPlan, State, Verb
from trainmon.slurm.commands import test_only
from trainmon.slurm.parse import read_start

NOBODY = Actor("", "")

TRY_AGAIN = "nothing was done; check it and try again"


class Offer(msgspec.Struct, frozen=True):
    """One line of the menu of some rows. A refusal of all these rows disables it and gives the reason."""

    verb: Verb
    title: str
    refusal: Refusal | None = None


def plan(request: ActionRequest, state: State, readback: Readback, actor: Actor, now: Instant) -> Plan:
    """What would be done, what is refused and why, and what must be typed."""
    if state.read_only:
        hint = "" if state.replay else "start it without --read-only (and without read_only in the config) to act"
        why = "this is a replay: it shows the past" if state.replay else "read-only: nothing is changed from here"
        refusals = (Refusal(subject=one, why=why, hint=hint) for one in request.subjects)
        return Plan(request=request, refusals=tuple(refusals))
    rows = [row for one in contexts_of(request, state, readback, actor, now) for row in _rows(one)]
    once: dict[tuple[str, bytes], Action] = {}
    for one in (one for row in rows for one in row.actions):  # a run and its job may both be marked
        path = getattr(one.operation, "path", None)
        what = repr(path).encode() if path is not None else msgspec.json.encode(one.operation)
        once.setdefault((one.host, what), one)
    at_stake = {row.typed: row.because for row in rows if row.typed and row.because}
    for one in once.values():
        cluster, expected = state.clusters.get(one.cluster), one.expected
        is_ours = expected.user is None or (cluster is not None and expected.user == cluster.me)
        if expected.id is not None and not is_ours:  # also where we do not know who we are there
            at_stake[expected.id] = f"job {expected.id} is {expected.user}'s"
    return Plan(
        request=request,
        actions=tuple(once.values()),
        refusals=tuple(one for row in rows for one in row.refusals),
        checks=tuple(one for row in rows for one in row.checks),
        typed=" ".join(at_stake) or None,
        because="; ".join(dict.fromkeys(at_stake.values())),
        choices=tuple(one for row in rows for one in row.choices),
    )


def _rows(context: PlanContext | Refusal) -> list[RowPlan]:
    if isinstance(context, Refusal):
        return [RowPlan(refusals=(context,))]
    try:
        return [with_gate(context, function(VERB[context.request.verb].plan)(context)), *second_trainer(context)]
    except Refused as refused:
        return [RowPlan(refusals=(refused.refusal,))]


def second_trainer(context: PlanContext) -> Iterator[RowPlan]:
    """What must be typed to start a run although another trainer writes its checkpoints, or may. A queued job waits for
    those of its own run; a requeue ends its own job.

    Raises:
        Refused: when nobody can type it.
    """
    if context.run is None or "config" not in VERB[context.request.verb].reads:
        return
    state = replace(context.state, jobs=context.known_jobs, at=context.now)
    own = context.jobs if context.request.verb == "queue" else context.jobs[:1]
    for job_id, why in writers(context.run, state, [job.key for job in own]):
        if context.request.is_retry:
            raise context.refused(why)
        yield RowPlan(typed=job_id, because=why)


def offered(
    state: State, subjects: Iterable[tuple[Literal["run", "job", "node"], str]], now: Instant
) -> tuple[Offer, ...]:
    """The menu of these rows, from the State alone. What is read just before a plan may still refuse an action."""
    rows, offers = tuple(subjects), []
    for spec in (spec for spec in VERBS if spec.menu):
        names = [name for kind, name in rows if (kind == "node") == (spec.target == "node")]
        requests = (ActionRequest(verb=spec.name, subjects=(name,), requested_at=now) for name in names)
        plans = [plan(request, state, Readback(at=now), NOBODY, now) for request in requests]
        refusals = [None if one.actions or one.choices else next(iter(one.refusals), None) for one in plans]
        many = f"{spec.title}: {refusals.count(None)} of {len(names)} rows"
        if refusals:
            title = spec.menu if len(names) == 1 or spec.name == "unkill" else many
            offers.append(Offer(spec.name, title, None if None in refusals else refusals[0]))
    return tuple(offers)


def hold_or_release(state: State, subjects: tuple[str, ...]) -> Verb:
    """What `H` means for these rows: release where the first of them is held."""
    for subject in subjects:
        keys = state.runs[subject].jobs if subject in state.runs else (subject,)
        jobs = [state.jobs[key] for key in keys if key in state.jobs]
        open_ones = [job for job in jobs if job.gone_at is None and job.stage != "ended"]
        waiting = [job for job in open_ones if job.stage == "waiting"] or open_ones
        if waiting:
            return "release" if all(is_held(job) for job in waiting) else "hold"
    return "hold"


def reads_for_plan(request: ActionRequest, state: State, readback: Readback) -> tuple[ReadRequest, ...]:
    """What must be read for a plan, by host. The queue in `readback` may show more jobs to read."""
    if state.read_only:
        return ()
    found: list[ReadRequest] = []
    for context in contexts_of(request, state, readback, NOBODY, readback.at):
        if isinstance(context, PlanContext):
            found += _reads_for_row(context)
            continue
        name, _, number = context.subject.rpartition("/")  # a job that is not in the State may still be Slurm's
        if name in state.clusters and number[:1].isdigit():
            found.append(ReadRequest(state.clusters[name].login, name, jobs=((context.subject, number),)))
    return tuple(found)


def _reads_for_row(context: PlanContext) -> Iterator[ReadRequest]:
    reads, host, cluster = VERB[context.request.verb].reads, context.host, context.cluster_info
    if "stacks" in reads:  # they are read on all nodes of the run
        return
    kill, save = context.switch_path("kill"), context.switch_path("save")
    if host is None:
        return
    if not reads or context.slurm is None or context.slurm.health == "off":
        if not context.nodes:
            switches = tuple(path for path in (kill, save) if path is not None)
            yield ReadRequest(host, context.cluster, switches=switches)
        return
    meant = context.jobs[:1]
    if "open jobs" in reads:
        meant = tuple(job for job in context.jobs if job.stage != "ended")[:8]
    elif "pending jobs" in reads:
        meant = context.jobs
    needs_queue = context.run is not None or bool(context.nodes)
    retry = retry_of(context) if "config" in reads else None
    yield ReadRequest(
        host,
        context.cluster,
        users=cluster.queue_users if cluster is not None and needs_queue else None,
        # an array's waiting tasks are among the records of its number
        jobs=tuple((job.key, str(job.array) if job.is_waiting_array and job.array else job.id) for job in meant),
        steps=tuple((job.key, job.step_target, str(job.number)) for job in meant) if "steps" in reads else (),
        switches=() if kill is None else (kill,),
        nodes=context.nodes,
        configs=(retry.config,) if retry is not None and retry.config is not None else (),
        start=start_to_ask(context) if "gate" in reads else None,
    )


# ---- the last check --------------------------------------------------------------------------------------------------


def reads_before(action: Action) -> ReadRequest:
    """What must be read just before an action."""
    expected = action.expected
    return ReadRequest(
        action.host,
        action.cluster,
        users=None if expected.chain is None else expected.chain.users,
        jobs=() if action.job is None or expected.id is None else ((action.job, expected.id.partition("_[")[0]),),
        switches=() if expected.switch_absent is None else (expected.switch_absent,),
        nodes=() if expected.undrained is None else (expected.undrained,),
    )


def recheck(action: Action, readback: Readback) -> Refusal | None:
    """Why an action is refused at last: what its plan showed has changed, or cannot be read."""
    why, hint = next(_changes(action, readback), (None, ""))
    return None if why is None else Refusal(subject=action.subject, why=why, hint=hint)


def unchecked(action: Action, readback: Readback) -> str | None:
    """What could not be checked of an action that runs all the same, and why."""
    if action.expected.needs_slurm or action.job is None or action.job in readback.jobs:
        return None
    why = readback.errors.get(action.job) or readback.errors.get(action.cluster)
    return None if why is None else f"could not check whether job {action.expected.id} still runs: {why}"


def _changes(action: Action, readback: Readback) -> Iterator[tuple[str, Sentence]]:
    """What has changed since the plan, each with a hint; the most important first."""
    expected, errors = action.expected, readback.errors
    if expected.switch_absent is not None:
        location = f"{action.host}:{expected.switch_absent}"
        stat = readback.switches.get(location)
        if stat is None or stat.exists is None:
            error = errors.get(location, "it was not read")
            yield f"it is no longer known whether the kill switch is armed: {error}", TRY_AGAIN
        elif stat.exists:
            by = f" by {stat.by}" if stat.by else ""
            yield f"the kill switch has been armed meanwhile{by}", stat.removal(ask("remove it first: {}", "unkill"))
    if name := expected.undrained:
        node = readback.nodes.get(name)
        if node is None:
            unread = errors.get(f"{action.cluster}/{name}") or errors.get(action.cluster)
            yield unread or f"sinfo does not list {name}", TRY_AGAIN
        elif node.is_drained:
            yield f"{name} is drained already: {node.reason or 'no reason'}", TRY_AGAIN
    if chain := expected.chain:
        if action.cluster in errors:
            yield errors[action.cluster], TRY_AGAIN
        for job in readback.jobs.values():
            is_of_it = job.cluster == action.cluster and job.name == chain.name and chain.user in (None, job.user)
            if is_of_it and job.stage != "ended" and str(job.array or job.number) not in chain.numbers:
                by = f" by {job.user}" if job.user else ""
                yield f"job {job.id} of the run has been queued meanwhile{by}: both would run at once", TRY_AGAIN
    if expected.id is None or action.job is None:
        return
    if action.job in readback.gone:
        yield f"Slurm no longer knows job {expected.id}", TRY_AGAIN
    elif action.job in readback.jobs:
        yield from ((why, TRY_AGAIN) for why in _job_changes(readback.jobs[action.job], expected))
    elif expected.needs_slurm:
        unread = errors.get(action.job) or errors.get(action.cluster) or f"job {expected.id} has changed since the plan"
        yield unread, "nothing was done; check the queue and try again"


def _job_changes(job: Job, expected: Expected) -> Iterator[str]:
    was_requeued = job.restarts is not None and job.restarts != expected.restarts
    requeued = f"job {job.id} was requeued meanwhile (restart {job.restarts})"
    if job.id != expected.id:
        yield f"{expected.id} has become {job.id} meanwhile"
    if expected.stages and job.stage not in expected.stages:
        yield f"job {job.id} is {job.state} now, no longer {' or '.join(expected.stages)}"
    if expected.user is not None and job.user != expected.user:
        yield f"job {job.id} is {job.user or 'nobody'}'s now: another job has its number"
    if None not in (expected.submitted_at, job.submitted_at) and job.submitted_at != expected.submitted_at:
        reused = f"job {job.id} is another job now: its number was reused"
        yield requeued if job.restarts and was_requeued else reused
    excluded = (*job.excluded, *job.excluded_in_part)
    if expected.excluded is not None and excluded != expected.excluded:
        yield f"job {job.id} excludes {', '.join(excluded) or 'no node'} now: its list was changed meanwhile"
    if expected.restarts is not None and was_requeued:
        yield requeued


# ---- the gate before a restart: the nodes on which a run may start again, and what a plan says of their checks ------

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
    facts = [("" if number else "nodes", line) for number, line in enumerate(check_lines(checks))]
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
    unnamed = (
        "Slurm does not name them yet"
        if said is not None and not read_start(said)
        else ""
        if checks
        else "no node is known"
    )
    if unnamed := context.readback.errors.get(key, unnamed):
        yield NodeCheck("", f"the next nodes{context.of_run}", "not checked", unnamed)
    if found is not None and (why := found.trouble or found.error):
        had_one = any(one.last_committed_step is not None for one in _attempts(context))
        is_fault = found.trouble is not None and (found.error is None or had_one)  # before the first, it may be missing
        yield NodeCheck("", f"checkpoint{context.of_run}", "fault" if is_fault else "not checked", why)


def check_lines(checks: Iterable[NodeCheck]) -> Iterator[str]:
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
