"""The base class of all alerting rules, and one evaluation of them. Pure."""

from __future__ import annotations

import re
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from math import isfinite
from pathlib import PurePath
from typing import Annotated, ClassVar, Concatenate, Literal, NamedTuple, ParamSpec, TypeVar

import msgspec
from msgspec.structs import replace

from trainmon.analysis.nodes import failing_server
from trainmon.lib import Instant, Seconds, clean, description, drop_oldest
from trainmon.model import Alert, Finding, Severity, Source, State

Duration = Annotated[float, "duration"]
"""Seconds; in the config `"5m"`."""
Share = Annotated[float, "share"]
"""0 to 1; in the config `"80%"`."""
Size = Annotated[int, "size"]
"""Bytes; in the config `"50GB"`."""

P = ParamSpec("P")
T = TypeVar("T")

Family = Literal["runs", "gpus", "nodes", "disks", "ourselves"]


class Unknown(NamedTuple):
    """It is not known whether a subject is well: its alert stays open."""

    why: str
    """In a sentence."""
    subject: str = ""
    """Left out where an alert is asked about."""
    data: Literal["stale", "error"] = "stale"
    """error: the rule failed."""


class Well(NamedTuple):
    """A subject is well: its alert is over."""

    note: str = ""
    """The end of the summary of that alert."""
    may_end: bool = True
    """Whether its alert may end now, if its condition has been gone for long enough."""


NOT_WATCHED = "no longer watched"
NOT_RUNNING = "no longer running"


class Gone(msgspec.Struct, frozen=True):
    """A subject is no longer watched, or its run has ended, although its sources answer: its alert ends at once."""

    how: str = NOT_WATCHED


Unseen = Unknown | Well | Gone
"""What is known of a subject that a rule does not find."""


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"for_": "for"}):
    """One alerting rule. Its fields are its settings in `[[rule]]`; their docstrings are the help and the documents."""

    name: ClassVar[str]
    """As in the config and in every message: of GpuHot, `gpu-hot`, unless the class says another one."""
    family: ClassVar[Family]
    what: ClassVar[str]
    """What it detects: its docstring."""
    origin: ClassVar[str]
    """The source of its defaults, in a few words: what stands behind `Defaults:` in its docstring."""
    may_flap: ClassVar[bool] = True
    """Whether a critical alert that flaps is notified once. If not, each episode is notified."""

    needs_for: ClassVar[bool] = False
    """Whether a single evaluation proves nothing, such as one sample of a GPU's clock. `snapshot` evaluates once: it
    reports pending alerts of all other rules, but not of these."""

    enabled: bool = True
    """Whether the rule is evaluated."""
    for_: Duration = 0.0
    """How long the condition must hold before the alert fires."""
    keep_firing_for: Duration = 60.0
    """How long the condition must be gone before the alert resolves."""
    severity: Severity | None = None
    """The severity of all alerts of this rule, instead of its own."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" not in cls.__dict__:
            cls.name = re.sub(r"\B([A-Z])", r"-\1", cls.__name__).lower()
        cls.what, _, cls.origin = description(cls).partition(" Defaults: ")

    def check(self, state: State, now: Instant) -> Iterator[Finding | Unknown]:
        """Every problem in this State, and every subject that lacks the data to find one."""
        raise NotImplementedError

    def unseen(self, state: State, alert: Alert, now: Instant) -> Unseen | None:
        """What is known of the subject of an open alert that `check` does not find; None if `check` says it.

        A rule overrides this if its subject may vanish, or lose its numbers, while its sources answer.
        """
        return silent(state, alert.sources)

    def present(self, state: State, alert: Alert) -> str:
        """How the subject of an alert is when the alert ends; empty if the rule cannot say it in a few words."""
        return ""


def silent(state: State, names: Iterable[str]) -> Unknown | None:
    """The first of these sources that does not answer."""
    for name in names:
        if not is_answering(state, name):
            source = state.sources.get(name)
            if (server := failing_server(source, state.sources)) is not None:
                return Unknown(f"{name}: Prometheus: {server.problem}")
            return Unknown(f"{name} is late" if source is None or not source.error else f"{name}: {source.problem}")
    return None


def is_answering(state: State, name: str) -> bool:
    """Whether a source answers now."""
    source = state.sources.get(name)
    return source is not None and source.health == "ok"


SETTLES: Seconds = 10.0
"""How long the first answers may take after a start. `snapshot` waits as long before it judges."""


def is_new(source: Source, state: State, now: Instant) -> bool:
    """Whether a source may only not have answered yet: nothing has failed, and this program has just started or asks a
    person to log in: while it does, other hosts that need a login wait."""
    has_nothing = source.answered_at is None and source.error is None
    return has_nothing and (bool(state.prompts) or now - state.started_at < SETTLES)


FIRST_LOGIN: Seconds = 120.0
"""How long the first login on a host that accepts connections is slow, and not an outage: sshd may wait for DNS, PAM or
a directory service."""


def is_logging_in(source: Source, state: State, now: Instant) -> bool:
    """Whether a host accepts connections, and its first login may still end well."""
    return source.login_since is not None and lasted(source.login_since, state, now) < FIRST_LOGIN


def lasted(since: Instant, state: State, now: Instant) -> Seconds:
    """How long a condition has lasted while this program watched, without the time that it was suspended."""
    return now - max(since, state.clock_jumped_at or 0.0)


def is_unread(source: Source, state: State) -> bool:
    """Whether a node is silent because the server with its numbers does not answer. That server has its own alert."""
    server = state.sources.get(source.via or "")
    return server is not None and server.health != "ok"


# ---- one evaluation of all rules -------------------------------------------------------------------------------------

RULE_RAISED = "rule-raised"

KEPT_AT_MOST = 256

EVIDENCE = 10
"""The newest lines of evidence that are kept."""


def of_last_state(function: Callable[Concatenate[State, P], T]) -> Callable[Concatenate[State, P], T]:
    """Keep the last result of a function of a State: all rules ask for the same one in turn, and no State changes."""
    last: tuple[State, object, T] | None = None

    @wraps(function)
    def kept(state: State, /, *args: P.args, **kwargs: P.kwargs) -> T:
        nonlocal last
        known = last
        if known is None or known[0] is not state or known[1] != (args, kwargs):
            known = last = state, (args, kwargs), function(state, *args, **kwargs)
        return known[2]

    return kept


K = TypeVar("K")
V = TypeVar("V")


def of_same_values(
    function: Callable[Concatenate[Mapping[K, V], P], Iterable[T]],
) -> Callable[Concatenate[str, Mapping[K, V], P], tuple[T, ...]]:
    """Keep the last result of a function by a name: the same objects in its mapping give the same result. For what
    changes more rarely than a State."""
    last: dict[str, tuple[Mapping[K, V], object, tuple[T, ...]]] = {}

    @wraps(function)
    def kept(name: str, values: Mapping[K, V], /, *args: P.args, **kwargs: P.kwargs) -> tuple[T, ...]:
        known = last.get(name)
        is_same = known is not None and known[1] == (args, kwargs) and known[0].keys() == values.keys()
        if known is None or not is_same or any(value is not known[0][key] for key, value in values.items()):
            last.pop(name, None)  # the newest stands last
            known = last[name] = values, (args, kwargs), tuple(function(values, *args, **kwargs))
            drop_oldest(last, KEPT_AT_MOST)
        return known[2]

    return kept


@of_last_state
def open_alerts(state: State) -> Mapping[str, Mapping[str, Alert]]:
    """The open alerts of each rule, by subject."""
    found: dict[str, dict[str, Alert]] = defaultdict(dict)
    for alert in state.alerts.values():
        if alert.is_open:
            found[alert.rule][alert.subject] = alert
    return found


def open_alert(state: State, rule: str, subject: str) -> Alert | None:
    """The open alert of a rule about a subject."""
    return open_alerts(state).get(rule, {}).get(clean(subject))


class Results(NamedTuple):
    """What one evaluation shows."""

    findings: tuple[Finding, ...]
    """At most one per rule and subject: the first."""
    unseen: Mapping[tuple[str, str], Unseen]
    """Of each open alert that was not found, by its rule and subject."""


def evaluate(rules: Iterable[Rule], state: State, now: Instant) -> Results:
    """Evaluate the enabled rules. The alerts of a rule that raises stay open."""
    found: dict[tuple[str, str], Finding] = {}
    unseen: dict[tuple[str, str], Unseen] = {}
    for rule in (rule for rule in rules if rule.enabled):
        alerts, unknown = open_alerts(state).get(rule.name, {}), dict[str, Unknown]()
        try:
            for result in rule.check(state, now):
                if isinstance(result, Finding):
                    finding = _configured(rule, result)
                    found.setdefault((finding.rule, finding.subject), finding)
                elif alerts:
                    unknown.setdefault(clean(result.subject), result)
            for alert in alerts.values():
                if alert.key not in found:
                    unseen[alert.key] = rule.unseen(state, alert, now) or unknown.get(alert.subject) or Well()
        except Exception as error:  # the fault of one rule stays its own, and is notified
            what = clean(f"{type(error).__name__}: {error}")[:200]
            frames = traceback.extract_tb(error.__traceback__)[-3:]
            finding = Finding(
                rule=RULE_RAISED,
                subject=f"rule:{rule.name}",
                severity="warning",
                summary=f"the rule {rule.name} cannot be evaluated: {what}",
                evidence=tuple(f"{PurePath(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in frames),
                advice="a bug in trainmon-tui, please report it; "
                f'[[rule]] type = "{rule.name}", enabled = false disables it',
            )
            found[finding.rule, finding.subject] = finding
            unseen |= {alert.key: Unknown(finding.summary, data="error") for alert in alerts.values()}
    return Results(tuple(found.values()), unseen)


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
