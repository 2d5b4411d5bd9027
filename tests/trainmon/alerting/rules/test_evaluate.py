"""All rules gone through once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainmon.alerting.rules.base import Rule, evaluate, failed_rules
from trainmon.model import Finding, State


class Hot(Rule, frozen=True, kw_only=True):
    """Finds two GPUs."""

    name = "hot"
    family = "gpus"
    origin = "the test"

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


def test_each_subject_is_found_once_with_the_newest_of_its_evidence() -> None:
    found = evaluate([Hot()], State(), 0.0)
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
    (found,) = evaluate([Spoiled()], State(), 0.0)
    assert (found.subject, found.summary) == ("node:n1 ib0", "red and more")
    assert (found.evidence, found.advice) == (("well", "90 %"), "see it")


def test_a_rule_that_is_switched_off_is_not_gone_through() -> None:
    assert evaluate([Hot(enabled=False)], State(), 0.0) == ()


def test_the_severity_of_the_config_counts_and_what_a_person_did_is_an_information_all_the_same() -> None:
    assert {finding.severity for finding in evaluate([Hot(severity="critical")], State(), 0.0)} == {"critical"}
    assert {one.severity for one in evaluate([Hot(severity="critical", person=True)], State(), 0.0)} == {"info"}


def test_a_rule_that_raises_costs_itself_and_is_found() -> None:
    found = evaluate([Broken(), Hot()], State(), 0.0)
    assert [finding.rule for finding in found] == ["broken", "rule-raised", "hot", "hot"]
    fault = found[1]
    assert fault.summary == "the rule broken cannot be evaluated: ValueError: boom"
    assert fault.evidence[-1].startswith("test_evaluate.py:")
    assert failed_rules(found) == {"broken": fault.summary}
