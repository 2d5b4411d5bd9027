"""Finds the signs of a line by the words that they need. Pure.

All expressions would take a millisecond for each line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

from trainmon.analysis.causes.rule import Rule

SHORTEST = 2


class Sign(NamedTuple):
    """One expression of the table."""

    order: int
    rule: Rule
    strength: int
    pattern: str


class Match(NamedTuple):
    rule: Rule
    strength: int
    """3: a stated reason. 2: a sign. 0: a hint."""
    text: str


class Sieve:
    """All signs by the words that they need."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        signs = [
            *(
                (rule, strength, pattern)
                for rule in rules
                for strength, patterns in ((3, rule.stated), (2, rule.signs))
                for pattern in patterns
            ),
            *((rule, 0, pattern) for rule in rules for pattern in rule.hints),
        ]
        self.by_word: dict[str, list[Sign]] = {}
        for order, (rule, strength, pattern) in enumerate(signs):
            for word in words(pattern) or ("",):
                self.by_word.setdefault(word, []).append(Sign(order, rule, strength, pattern))

    def matches(self, text: str) -> Iterator[Match]:
        """What a line says, in the order of the table; hints last."""
        lower = text.casefold()
        found = {sign.order: sign for word, signs in self.by_word.items() if word in lower for sign in signs}
        for _, sign in sorted(found.items()):
            if (match := expression(sign.pattern).search(text)) is not None:
                yield Match(sign.rule, sign.strength, match[0])


@cache
def expression(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def words(pattern: str) -> frozenset[str] | None:
    """Words of which each match of a pattern contains one; null if it needs none."""
    return _needed(_parser.parse(pattern, re.IGNORECASE))


def _needed(parsed: Any) -> frozenset[str] | None:
    best: frozenset[str] | None = None
    run = ""
    for kind, value in [*parsed, (None, None)]:
        if kind is op.LITERAL:
            run += chr(value).casefold()
            continue
        found = frozenset((run,)) if len(run) >= SHORTEST else None
        run = ""
        best = _better(best, found)
        if kind is op.SUBPATTERN:
            best = _better(best, _needed(value[-1]))
        elif kind is op.BRANCH:
            branches = [_needed(branch) for branch in value[1]]
            if all(branches):
                best = _better(best, frozenset().union(*(branch for branch in branches if branch)))
        elif kind in (op.MAX_REPEAT, op.MIN_REPEAT) and value[0] > 0:
            best = _better(best, _needed(value[2]))
    return best


def _better(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    """The one that fewer lines contain: long words, few of them."""
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda words: (min(map(len, words)), -len(words)))
