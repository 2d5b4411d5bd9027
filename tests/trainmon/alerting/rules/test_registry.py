"""All rules together: what those about runs say of a run of which hardly anything is known, and the names of rules."""

from __future__ import annotations

import itertools
import re
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from tests.trainmon.alerting.rules.asked import findings, why_unknown
from tests.trainmon.alerting.rules.runs.states import (
    NOW,
    PROGRESS,
    SPEC,
    WITH_WANDB,
    alert,
    checkpoint,
    checkpoints,
    ended,
    job,
    state,
    wandb,
)
from trainmon.alerting.rules import DISKS, GPUS, MONITORING, NODES, RULES, RUNS
from trainmon.alerting.rules.base import Rule
from trainmon.model import SEVERITIES, Finding, Log, Progress, Run, State, Switch, Verdict, Wandb

SPARSE: tuple[dict[str, Any], ...] = (
    {"progress": Progress(), "log": None},
    {"progress": Progress(step=5), "log": Log(host="gone")},
    {"progress": replace(PROGRESS, at=None, cadence_s=None), "kill": Switch(path="/k"), "save": Switch(path="/s")},
    {"kill": Switch(path="/k", exists=True), "save": Switch(path="/s", exists=True)},
    {"checkpoints": checkpoints(), "spec": WITH_WANDB, "wandb": Wandb()},
    {"checkpoints": checkpoints(checkpoint(None, 99_999, at=None), save_s=None, every_s=None, every_steps=None)},
    {"spec": replace(WITH_WANDB, job=None, target_step=None, log=None), "wandb": wandb("several", active=("x", "y"))},
    {"spec": replace(SPEC, found=True, nodes=()), "wandb": wandb("overdue", active=(), runs=())},
)
QUEUES = ((), (job(started_at=None),), (ended(ends_at=None, exit_code=None),), (job(89, state="PENDING"), ended()))

NAMES = frozenset({
    "auto-requeue", "channel-failing", "checkpoint-overdue", "checkpoint-pointer", "checkpoint-torn",
    "checkpoints-do-not-fit", "clock-jumped", "clock-skew", "cluster-unreachable", "config-refused",
    "data-stall", "disk-forecast", "disk-full", "disk-hung", "disk-read-only", "ecc-uncorrected", "ended-early",
    "finished", "gpu-hot", "gpu-idle", "gpu-leftover", "gpu-lost", "gpu-memory-full", "gpu-missing",
    "gpu-slowdown", "infiniband-down", "infiniband-flapping", "inodes-full", "kill-switch-left", "ledger-stuck",
    "log-unread", "loss-nan", "loss-scale-floor", "loss-spike", "memory-full", "memory-leak", "monitor-blind",
    "no-job-queued", "node-drained", "node-rebooted", "node-unreachable", "not-scheduled", "oom-kill",
    "outbox-old", "power-brake", "quota", "restarted", "retry-storm", "row-remap", "rule-raised", "run-dead",
    "run-hung", "run-stalled", "run-stopped", "save-switch-ignored", "second-trainer", "skipped-steps",
    "slow-throughput", "source-down", "source-late", "spares-few", "straggler", "test-unanswered",
    "time-limit-near", "wandb-heartbeat-lost", "wandb-run-crashed", "wandb-several-active", "wrong-resume",
    "xid",
})  # fmt: skip
"""Configs, ledgers and scripts know these names. A new rule needs no entry."""


def everything(seen: State) -> list[tuple[Rule, Finding]]:
    return [(rule, finding) for rule in (kind() for kind in RUNS) for finding in findings(rule, seen, NOW)]


@pytest.mark.parametrize("verdict", get_args(Verdict))
def test_no_rule_raises_on_a_run_of_which_hardly_anything_is_known(verdict: Verdict) -> None:
    looked = 0
    for known, jobs in itertools.product(SPARSE, QUEUES):
        seen = state(*jobs, verdict=verdict, why="it is so", **known)
        bare = replace(seen, sources={}, jobs={})
        for one in (seen, bare):
            for rule, finding in everything(one):
                assert finding.severity in SEVERITIES
                assert finding.summary
                why_unknown(rule, bare, alert(finding), NOW)
                why_unknown(rule, replace(seen, runs={}), alert(finding), NOW)
            looked += 1
    assert looked == 2 * len(SPARSE) * len(QUEUES)


def test_of_a_run_that_was_just_named_nothing_is_reported() -> None:
    assert everything(State(at=NOW, runs={"llm": Run(spec=SPEC)})) == []


@pytest.mark.parametrize(
    ("family", "rules"),
    [("runs", RUNS), ("gpus", GPUS), ("nodes", NODES), ("disks", DISKS), ("ourselves", MONITORING)],
)
def test_a_rule_is_among_its_family_and_says_where_its_defaults_are_from(
    family: str, rules: tuple[type[Rule], ...]
) -> None:
    for rule in rules:
        assert rule.family == family
        assert rule.origin
        assert rule.__doc__
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.name), "as the config and every message write it"


def test_every_rule_has_a_name_of_its_own() -> None:
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)
    assert len(names) == sum(map(len, (RUNS, GPUS, NODES, DISKS, MONITORING)))


def test_no_rule_is_renamed() -> None:
    assert NAMES - {rule.name for rule in RULES} == set()


@pytest.mark.parametrize("verdict", ["stopped", "finished"])
def test_what_a_person_ended_and_what_is_done_is_never_critical(verdict: Verdict) -> None:
    torn = checkpoint(12_500, 99, state="torn")
    wreck = checkpoints(torn, problem="latest is empty", trouble="latest is empty", every_steps=1)
    quiet = replace(PROGRESS, at=NOW - 90_000, skipped_in_row=90)
    for jobs in ((), (ended("FAILED"),), (ended("COMPLETED"),), (ended("CANCELLED"),)):
        seen = state(*jobs, verdict=verdict, why="ann", progress=quiet, checkpoints=wreck)
        assert [finding for _, finding in everything(seen) if finding.severity == "critical"] == []
