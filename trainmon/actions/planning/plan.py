"""An Ask + the State + what was read just now → a Plan; and what must be read for it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from trainmon.actions.planning.context import Actor, Answer, FileStat, LookAt, PlanContext, Readback, case_of
from trainmon.actions.planning.jobs import cancel, hold, is_held, release, requeue
from trainmon.actions.planning.precheck import recheck, rechecked, unchecked
from trainmon.actions.planning.queue import cluster_of, exclude, queue, waiting_jobs
from trainmon.actions.planning.signal import signal
from trainmon.actions.planning.switches import Armed, armed, kill, save, undo
from trainmon.lib import Instant
from trainmon.model import Action, ActionRequest, Job, Plan, Refusal, State, Verb

__all__ = [
    "Actor",
    "Armed",
    "FileStat",
    "LookAt",
    "Offer",
    "Readback",
    "armed",
    "hold_or_release",
    "looks",
    "offered",
    "plan",
    "recheck",
    "rechecked",
    "unchecked",
]  # fmt: skip

PLANS: dict[Verb, Callable[[PlanContext], Answer]] = {
    "save": save,
    "kill": kill,
    "unkill": undo,
    "unsave": undo,
    "requeue": requeue,
    "cancel": cancel,
    "hold": hold,
    "release": release,
    "signal": signal,
    "queue": queue,
}
"""All but `exclude`, whose nodes are planned together: a job has one list of them."""

SWITCH_VERBS = frozenset({"save", "kill", "unkill", "unsave"})
QUEUE_VERBS = frozenset({"queue", "exclude"})
"""Those that need to know all jobs that wait, as they are now."""

TITLES: dict[Verb, str] = {
    "save": "Save a checkpoint now",
    "kill": "End it by its kill switch",
    "unkill": "Take back its kill switch",
    "unsave": "Take back its save switch",
    "requeue": "Requeue its job",
    "cancel": "Cancel its job",
    "hold": "Hold its job",
    "release": "Release its job",
    "signal": "Send USR1 to its trainer",
    "queue": "Queue another",
    "exclude": "Keep waiting jobs off it",
}

OFFERS: dict[str, tuple[Verb, ...]] = {
    "run": ("save", "kill", "unkill", "unsave", "requeue", "cancel", "hold", "release", "signal", "queue"),
    "job": ("save", "kill", "unkill", "unsave", "requeue", "cancel", "hold", "release", "signal", "queue"),
    "node": ("exclude",),
}
"""What may be asked of a row, in the order of the menu."""

NOBODY = Actor("", "")


class Offer(msgspec.Struct, frozen=True):
    """One line of a row's menu; a refusal greys it and says why."""

    verb: Verb
    title: str
    refusal: Refusal | None = None


def plan(ask: ActionRequest, state: State, fresh: Readback, actor: Actor, now: Instant) -> Plan:
    """What would be done, what is refused and why, and what must be typed."""
    if state.read_only:
        hint = "start it without --read-only (and without read_only in the config) to act"
        why = "read-only: nothing is changed from here"
        return Plan(request=ask, refusals=tuple(Refusal(subject=one, why=why, hint=hint) for one in ask.subjects))
    if ask.verb == "exclude":
        answers = [exclude(ask, state, fresh, actor, now)]
    else:
        answers = [_answer(ask, state, fresh, actor, now, subject) for subject in dict.fromkeys(ask.subjects)]
    return _joined(ask, state, answers)


def _answer(ask: ActionRequest, state: State, fresh: Readback, actor: Actor, now: Instant, subject: str) -> Answer:
    case = case_of(ask, state, fresh, actor, now, subject)
    return Answer(refusals=(case,)) if isinstance(case, Refusal) else PLANS[ask.verb](case)


def _joined(ask: ActionRequest, state: State, answers: list[Answer]) -> Plan:
    """One Plan over several rows. A run and its job may both be marked: what is done is done once."""
    once: dict[tuple[str, bytes], Action] = {}
    for answer in answers:
        for one in answer.actions:
            path = getattr(one.operation, "path", None)
            what = repr(path).encode() if path is not None else msgspec.json.encode(one.operation)
            once.setdefault((one.host, what), one)
    at_stake = {answer.typed: answer.because for answer in answers if answer.typed}
    for one in once.values():
        if one.expected.id is not None and _is_of_another(one, state):
            at_stake[one.expected.id] = f"job {one.expected.id} is {one.expected.user}'s"
    return Plan(
        request=ask,
        actions=tuple(once.values()),
        refusals=tuple(one for answer in answers for one in answer.refusals),
        typed=" ".join(at_stake) or None,
        because="; ".join(dict.fromkeys(at_stake.values())),
        choices=tuple(one for answer in answers for one in answer.choices),
    )


def _is_of_another(action: Action, state: State) -> bool:
    """Whether it is done to a job of somebody else, or of somebody while we do not know who we are there."""
    cluster = state.clusters.get(action.cluster)
    return action.expected.user is not None and (cluster is None or action.expected.user != cluster.me)


def offered(state: State, kind: Literal["run", "job", "node"], subject: str, now: Instant) -> tuple[Offer, ...]:
    """What a row's menu offers, from the State alone: what is read just before a plan may still refuse it."""
    fresh = Readback(at=now)
    offers = []
    for verb in OFFERS[kind]:
        ask = ActionRequest(verb=verb, subjects=(subject,), asked_at=now)
        made = plan(ask, state, fresh, NOBODY, now)
        refusal = None if made.actions or made.choices else next(iter(made.refusals), None)
        if verb != "unsave" or refusal is None:  # `unkill` says it for both
            offers.append(Offer(verb, TITLES[verb], refusal))
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


def looks(ask: ActionRequest, state: State, fresh: Readback) -> tuple[LookAt, ...]:
    """What must be read for a plan, by host. Asked again once the queue is read (`fresh`): it may name more jobs."""
    if state.read_only:
        return ()
    if ask.verb == "exclude":
        return _looks_for_nodes(ask, state, fresh)
    found = []
    for subject in dict.fromkeys(ask.subjects):
        case = case_of(ask, state, fresh, NOBODY, fresh.at, subject)
        look = _unknown_job(state, subject) if isinstance(case, Refusal) else _look(case)
        if look is not None:
            found.append(look)
    return tuple(found)


def _look(case: PlanContext) -> LookAt | None:
    host, verb = case.host, case.ask.verb
    if host is None:
        return None
    spec = None if case.run is None else case.run.spec
    paths = () if spec is None else tuple(path for path in (spec.kill_switch, spec.save_switch) if path is not None)
    if verb in SWITCH_VERBS or not _has_slurm(case.state, case.cluster):
        return LookAt(host, case.cluster, switches=paths)
    meant = [case.job] if verb not in ("hold", "release") else [job for job in case.jobs if job.stage != "ended"]
    jobs = tuple((job.key, target(job)) for job in meant[:8] if job is not None)
    steps = tuple((job.key, job.step_target) for job in meant if job is not None) if verb == "signal" else ()
    users = case.known.queue_users if case.known is not None and case.run is not None else None
    kill = tuple(path for path in paths if spec is not None and path == spec.kill_switch)
    return LookAt(host, case.cluster, users, jobs, steps, kill)


def _unknown_job(state: State, subject: str) -> LookAt | None:
    """A job that is not in the State may still be Slurm's: asked for by its key."""
    name, _, number = subject.rpartition("/")
    cluster = state.clusters.get(name)
    if cluster is None or not number[:1].isdigit():
        return None
    return LookAt(cluster.login, name, jobs=((subject, number),))


def _looks_for_nodes(ask: ActionRequest, state: State, fresh: Readback) -> tuple[LookAt, ...]:
    found = []
    for name in dict.fromkeys(of for of in (cluster_of(state, node) for node in ask.subjects) if of is not None):
        cluster = state.clusters.get(name)
        if cluster is None or not _has_slurm(state, name):
            continue
        nodes = tuple(node for node in ask.subjects if cluster_of(state, node) == name)
        jobs = tuple((job.key, target(job)) for job in waiting_jobs(ask, state, fresh, name, nodes))
        found.append(LookAt(cluster.login, name, cluster.queue_users, jobs, nodes=nodes))
    return tuple(found)


def _has_slurm(state: State, cluster: str) -> bool:
    source = state.sources.get(f"slurm:{cluster}")
    return source is not None and source.health != "off"


def target(job: Job) -> str:
    """What `scontrol show job` is asked for: an array's waiting elements are among the records of its number."""
    return str(job.array) if job.is_waiting_array and job.array is not None else job.id
