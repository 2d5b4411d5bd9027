"""All rules gone through once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from trainmon.alerting.rules.base import Rule, Unknown, Well, evaluate
from trainmon.model import Alert, Finding, State


class Hot(Rule, frozen=True, kw_only=True):
    """Finds two GPUs."""

    name = "hot"
    family = "gpus"

    person: bool = False

    def check(self, state: State, now: float) -> Iterator[Finding]:
        for index in range(2):
            yield self._of(index)
        yield self._of(0, summary="the same again")

    def _of(self, index: int, **more: Any) -> Finding:
        words = {"summary": f"GPU {index}"} | more
        lines = tuple(str(line) for line in range(30))
        return Finding(
            rule="hot", subject=f"gpu:n1/{index}", severity="warning", person=self.person, evidence=lines, **words
        )


class Broken(Hot, frozen=True, kw_only=True):
    """Falls over after its first finding."""

    name = "broken"

    def check(self, state: State, now: float) -> Iterator[Finding]:
        yield Finding(rule="broken", subject="gpu:n1/0", severity="critical", summary="found before")
        raise ValueError("\x1b[31mboom")


def alert_of(rule: str, subject: str) -> Alert:
    return Alert(
        id=subject, rule=rule, subject=subject, severity="warning", summary="hot", since=0.0, found_at=0.0,
        phase="firing",
    )  # fmt: skip


def test_each_subject_is_found_once_with_the_newest_of_its_evidence() -> None:
    found = evaluate([Hot()], State(), 0.0).findings
    assert [finding.summary for finding in found] == ["GPU 0", "GPU 1"]
    assert found[0].evidence == tuple(str(line) for line in range(20, 30))


class Spoiled(Hot, frozen=True, kw_only=True):
    """Finds what a stranger has written."""

    name = "spoiled"

    def check(self, state: State, now: float) -> Iterator[Finding]:
        yield Finding(
            rule="spoiled", subject="node:n1 \x1b]0;x\x07ib0", severity="warning",
            summary="\x1b[31mred\nand more\u202e", evidence=("well", "10 %\r90 %"), advice="see\x9b2J it",
        )  # fmt: skip


def test_what_strangers_wrote_is_fit_to_show_before_it_is_an_alert() -> None:
    (found,) = evaluate([Spoiled()], State(), 0.0).findings
    assert (found.subject, found.summary) == ("node:n1 ib0", "red and more")
    assert (found.evidence, found.advice) == (("well", "90 %"), "see it")


def test_a_rule_that_is_switched_off_is_not_gone_through() -> None:
    assert evaluate([Hot(enabled=False)], State(), 0.0).findings == ()


def test_the_severity_of_the_config_counts_and_what_a_person_did_is_an_information_all_the_same() -> None:
    for person, severity in ((False, "critical"), (True, "info")):
        found = evaluate([Hot(severity="critical", person=person)], State(), 0.0).findings
        assert {finding.severity for finding in found} == {severity}


def test_a_rule_that_raises_costs_itself_and_is_found() -> None:
    known = {name: alert_of("broken", name) for name in ("gpu:n1/0", "gpu:n1/1")}
    found, unseen = evaluate([Broken(), Hot()], State(alerts=known), 0.0)
    assert [finding.rule for finding in found] == ["broken", "rule-raised", "hot", "hot"]
    fault = found[1]
    assert fault.summary == "the rule broken cannot be evaluated: ValueError: boom"
    assert fault.evidence[-1].startswith("test_evaluate.py:")
    assert unseen["broken", "gpu:n1/1"] == Unknown(fault.summary, data="error")


class Unread(Hot, frozen=True, kw_only=True):
    """Lacks the data of one GPU, and finds the other one well."""

    name = "unread"

    def check(self, state: State, now: float) -> Iterator[Finding | Unknown]:
        yield Unknown("GPU 0 was not read", "gpu:n1/0")


def test_a_subject_without_data_is_not_well() -> None:
    known = {name: alert_of("unread", name) for name in ("gpu:n1/0", "gpu:n1/1")}
    assert evaluate([Unread()], State(alerts=known), 0.0).unseen == {
        ("unread", "gpu:n1/0"): Unknown("GPU 0 was not read", "gpu:n1/0"),
        ("unread", "gpu:n1/1"): Well(),
    }
    silent = replace(known["gpu:n1/1"], sources=("node:n1",))
    unseen = evaluate([Unread()], State(alerts={"a": silent}), 0.0).unseen
    assert unseen == {silent.key: Unknown("node:n1 is late")}, "its source does not answer"
