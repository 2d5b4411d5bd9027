"""What is known of the nodes on which a run may start again: the rules judge, and say where they lack data. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from trainmon.alerting.rules import Rule, is_answering
from trainmon.alerting.rules.base import Unknown
from trainmon.alerting.rules.nodes import DOWN, DOWN_FLAGS
from trainmon.analysis.retries import record_text
from trainmon.lib import Instant, Seconds, group_by
from trainmon.model import Alert, Attempt, NodeCheck, State, says

CHECKS: Mapping[str, tuple[str, ...]] = {
    "GPUs listed": ("gpu-lost", "gpu-missing"),
    "ECC": ("ecc-uncorrected",),
    "remapped rows": ("row-remap",),
    "Xids": ("xid",),
    "leftovers": ("gpu-leftover",),
    "links": ("slow-link", "infiniband-down", "infiniband-flapping"),
    **dict.fromkeys(("/dev/shm", "/tmp"), ("disk-full", "inodes-full", "disk-hung", "disk-read-only")),
}
"""The rules that judge each check. Of a disk only a critical alert counts: at a warning, a tenth of it is left."""

PASSING = frozenset({"disk-full", "inodes-full", "infiniband-flapping"})
"""What may end with the job or within minutes. On a node that is only read during a job, its alert stays open."""

SURVIVED: Seconds = 3_600.0
"""What the run has trained beside for so long does not end its next attempt. A collective may wait half an hour."""


def node_checks(
    state: State, rules: Iterable[Rule], nodes: Sequence[str], run: str | None, since: Instant, now: Instant
) -> Iterator[NodeCheck]:
    """The checks of these nodes before a start of the run, if the rules were evaluated `since` then. A pending alert
    counts while its node is read: its problem is seen. An event, such as an Xid of a program, does not; nor does what
    is no longer found."""
    known, judged = {rule.name: rule for rule in rules}, is_judged(state, since)
    alerts = group_by(
        (one for one in state.alerts.values() if one.phase in ("pending", "firing") and not one.event),
        lambda alert: alert.node,
    )
    trained = [one for one in state.attempts.values() if one.run_id == run]
    for node in nodes:
        slurm = state.scheduler_nodes.get(node)
        is_closed = slurm is not None and (slurm.is_drained or slurm.state in DOWN or DOWN_FLAGS & {*slurm.flags})
        if slurm is not None and is_closed and is_answering(state, f"slurm:{slurm.cluster}"):
            yield NodeCheck(node, "Slurm", "not used", f"{slurm.full_state}, {slurm.reason or 'no reason'}")
            continue
        is_read = is_answering(state, f"node:{node}")
        for check, names in CHECKS.items():
            unknown = _unknown(state, known, node, check, now) if judged else "the rules have not been evaluated"
            seen = [
                NodeCheck(node, check, "noted" if _is_harmless(one, trained) else "fault", one.summary)
                for one in alerts.get(node, ())
                if one.rule in names
                and (is_read or (one.phase == "firing" and one.rule not in PASSING))
                and (check[0] != "/" or (one.severity == "critical" and one.subject.endswith(f":{check}")))
            ]
            seen.sort(key=lambda one: one.outcome)
            yield next(iter(seen), NodeCheck(node, check, "not checked" if unknown else "passed", unknown))
        at = slurm or state.nodes.get(node)
        if at is not None and (record := state.node_records.get(f"{at.cluster}/{node}")) is not None:
            yield NodeCheck(node, "history", *(("noted", record_text(record)) if record.is_bad else ()))


def _is_harmless(alert: Alert, trained: Iterable[Attempt]) -> bool:
    """Whether the next attempt of a run does not fail by this; `trained`: those before that made steps."""
    return (
        bool(alert.known.get("starts"))
        or says(alert.summary, "no-permission")  # of ours, not the job's
        or any(
            alert.node in one.nodes
            and max(alert.since, one.first_step_at or math.inf) + SURVIVED
            <= (one.hung_since or one.ended_at or one.seen_at)
            for one in trained
        )
    )


def is_judged(state: State, since: Instant) -> bool:
    """Whether the rules were evaluated since then, or another program evaluates them."""
    return (state.evaluated_at or 0.0) >= since or state.leadership.holder not in ("us", "nobody")


def _unknown(state: State, rules: Mapping[str, Rule], name: str, check: str, now: Instant) -> str:
    """Why a check of a node without an alert proves nothing; empty if it does."""
    node, source, slurm = state.nodes.get(name), state.sources.get(f"node:{name}"), state.scheduler_nodes.get(name)
    if node is None or source is None or source.health != "ok":
        return (
            "it is not watched"
            if source is None
            else source.problem or ("it is only read during a job" if source.health == "off" else "no data now")
        )
    if off := [rule for rule in CHECKS[check] if rule not in rules]:
        return f"the rule {off[0]} is off"
    if check == "leftovers" and slurm is not None and slurm.state != "IDLE":
        return f"it is {slurm.state} in Slurm: a job uses it"
    subjects = {
        "gpus": [f"gpu:{name}/{gpu.index}" for gpu in node.gpus] or [f"gpu:{name}/"],
        "nodes": [f"node:{name} {port.port}" for port in node.infiniband if port.state == "ACTIVE"],
        "disks": [f"disk:{name}:{check}"],
    }
    blank = Alert(
        id="", rule="", subject="", severity="info", summary="", since=now, found_at=now, node=name,
        sources=(f"node:{name}",),
    )  # fmt: skip
    answers = (
        rules[rule].unseen(state, replace(blank, rule=rule, subject=subject), now)
        for rule in (*CHECKS[check], *(["gpu-lost"] * (check == "Xids")))  # which says whether its GPUs are read
        if rule in rules
        for subject in subjects[rules[rule].family]
    )
    # What is alike on many nodes is told once.
    return next(
        (one.why.replace(f" of {name}", "").replace(f"{name}:", "") for one in answers if isinstance(one, Unknown)), ""
    )
