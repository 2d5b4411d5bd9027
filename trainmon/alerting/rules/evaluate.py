"""All rules gone through once. A rule that raises is itself something that is found; the others go on. Pure."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from pathlib import PurePath

from msgspec.structs import replace

from trainmon.alerting.rules.base import Rule
from trainmon.lib import Instant, clean
from trainmon.model import Finding, State

RULE_RAISED = "rule-raised"

EVIDENCE = 10
"""The lines of evidence that are kept, the newest."""


def evaluate(rules: Iterable[Rule], state: State, now: Instant) -> tuple[Finding, ...]:
    """Everything that is wrong, each (rule, subject) once: of two the first."""
    found: dict[tuple[str, str], Finding] = {}
    for rule in rules:
        if rule.enabled:
            for finding in _checked(rule, state, now):
                found.setdefault((finding.rule, finding.subject), finding)
    return tuple(found.values())


def raised(findings: Iterable[Finding]) -> Mapping[str, str]:
    """The rules that could not be gone through, and why: what they found before still stands."""
    return {
        finding.subject.removeprefix("rule:"): finding.summary for finding in findings if finding.rule == RULE_RAISED
    }


def _checked(rule: Rule, state: State, now: Instant) -> Iterator[Finding]:
    try:
        for finding in rule.check(state, now):
            yield _told(rule, finding)
    except Exception as error:  # whatever it is: one rule's fault is that rule's, and is told
        yield _raised(rule, error)


def _told(rule: Rule, finding: Finding) -> Finding:
    """The finding as it is configured to be told, in words that are fit to show: from here on it is an alert, which
    goes to screens, ledgers and phones."""
    is_dated = finding.since is None or isfinite(finding.since)
    told = replace(
        finding,
        subject=clean(finding.subject),
        severity="info" if finding.person else rule.severity or finding.severity,
        summary=clean(finding.summary),
        evidence=tuple(clean(line) for line in finding.evidence[-EVIDENCE:]),
        advice=clean(finding.advice),
        since=finding.since if is_dated else None,
    )
    return finding if told == finding else told


def _raised(rule: Rule, error: Exception) -> Finding:
    what = clean(f"{type(error).__name__}: {error}")[:200]
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return Finding(
        rule=RULE_RAISED,
        subject=f"rule:{rule.name}",
        severity="warning",
        summary=f"the rule {rule.name} cannot be gone through: {what}",
        evidence=tuple(f"{PurePath(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in frames),
        advice=f'a fault of this program: report it; [[rule]] type = "{rule.name}", enabled = false quiets it',
    )
