"""Failure logs of public issue threads, each labelled with the cause that an expert names."""

from __future__ import annotations

import pytest

from tests.trainmon.analysis.causes.logs import CapturedLog, captured, of
from trainmon.analysis.causes.rules import RULE, RULES
from trainmon.analysis.causes.sieve import Sieve, expression, words
from trainmon.model import CAUSES

LOGS = captured()


@pytest.mark.parametrize("log", LOGS, ids=[log.id for log in LOGS])
def test_a_captured_log_has_the_cause_that_an_expert_names(log: CapturedLog) -> None:
    found = of(log.log, exit_code=log.exit_code)
    assert found.cause in (log.cause, *log.also_right), found.evidence


def test_each_cause_has_one_row_with_what_to_do_and_a_source() -> None:
    assert {rule.cause for rule in RULES} == set(CAUSES)
    assert len(RULES) == len(RULE) == len(CAUSES)
    assert [rule.cause for rule in RULES if not (rule.meaning and rule.advice and rule.source)] == []


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_the_sieve_finds_what_the_expressions_find(every: int) -> None:
    signs = [pattern for rule in RULES for pattern in (*rule.stated, *rule.signs, *rule.hints)]
    assert [pattern for pattern in signs if words(pattern) is None] == []
    sieve = Sieve(RULES)
    for line in {line for log in LOGS[::every] for line in log.log.splitlines()}:
        sieved = {text for _, text in sieve.matches(line)}
        found = {match[0] for pattern in signs if (match := expression(pattern).search(line)) is not None}
        assert sieved == found, line
