"""What a rule finds, and what an evaluation says of an alert that its rule does not find."""

from __future__ import annotations

from msgspec.structs import replace

from trainmon.alerting.rules.base import Rule, Unknown, evaluate
from trainmon.model import Alert, Finding, State


def findings(rule: Rule, state: State, now: float) -> list[Finding]:
    """What the rule finds, without what it cannot judge."""
    return [one for one in rule.check(state, now) if isinstance(one, Finding)]


def why_unknown(rule: Rule, state: State, alert: Alert, now: float) -> str | None:
    """Why it is not known whether the alert is over; None if it is over, or found."""
    unseen = evaluate([rule], replace(state, alerts={**state.alerts, alert.id: alert}), now).unseen.get(alert.key)
    if not isinstance(unseen, Unknown):
        return None
    assert unseen.data == "stale", unseen.why
    return unseen.why
