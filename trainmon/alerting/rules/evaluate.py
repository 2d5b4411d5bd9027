"""One evaluation of all rules. A rule that raises becomes a finding; the others are evaluated. Pure."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping
from math import isfinite
from pathlib import PurePath

from msgspec.structs import replace

from trainmon.alerting.rules.base import Rule
from trainmon.lib import Instant, clean
from trainmon.model import Finding, State

RULE_RAISED = "rule-raised"

EVIDENCE = 10
"""The newest lines of evidence that are kept."""


def evaluate(rules: Iterable[Rule], state: State, now: Instant) -> tuple[Finding, ...]:
    """All findings, at most one per rule and subject: the first."""
    found: dict[tuple[str, str], Finding] = {}
    for rule in rules:
        if not rule.enabled:
            continue
        try:
            for finding in rule.check(state, now):
                configured = _configured(rule, finding)
                found.setdefault((configured.rule, configured.subject), configured)
        except Exception as error:  # the fault of one rule stays its own, and is notified
            found.setdefault((RULE_RAISED, f"rule:{rule.name}"), _raised(rule, error))
    return tuple(found.values())


def failed_rules(findings: Iterable[Finding]) -> Mapping[str, str]:
    """The rules that could not be evaluated, and why. Their open alerts stay open."""
    return {
        finding.subject.removeprefix("rule:"): finding.summary for finding in findings if finding.rule == RULE_RAISED
    }


def _configured(rule: Rule, finding: Finding) -> Finding:
    """The finding with its configured severity and clean texts, which go to screens, ledgers and phones."""
    is_dated = finding.since is None or isfinite(finding.since)
    configured = replace(
        finding,
        subject=clean(finding.subject),
        severity="info" if finding.person else rule.severity or finding.severity,
        summary=clean(finding.summary),
        evidence=tuple(clean(line) for line in finding.evidence[-EVIDENCE:]),
        advice=clean(finding.advice),
        since=finding.since if is_dated else None,
    )
    return finding if configured == finding else configured


def _raised(rule: Rule, error: Exception) -> Finding:
    what = clean(f"{type(error).__name__}: {error}")[:200]
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return Finding(
        rule=RULE_RAISED,
        subject=f"rule:{rule.name}",
        severity="warning",
        summary=f"the rule {rule.name} cannot be evaluated: {what}",
        evidence=tuple(f"{PurePath(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in frames),
        advice=f'a bug in trainmon-tui, please report it; [[rule]] type = "{rule.name}", enabled = false disables it',
    )
