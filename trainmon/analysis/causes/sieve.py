"""The signs of causes: what a row of the table is, and which rows a line fits. Pure.

All expressions would take a millisecond for each line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Literal, NamedTuple

import msgspec

from trainmon.lib import by_key
from trainmon.model import CauseName, Family, Retry

# ---- one row of the table of causes ----------------------------------------------------------------------------------

Role = Literal["root", "generic", "cascade", "result"]
"""`root`: an error that starts a failure. `generic`: an exception behind which a better cause may stand.
`cascade`: what follows when another rank has failed. `result`: not an error."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What a cause means, the signs of it in a log, and what to do.

    A sign is a regular expression for one line, without regard to case. It names what a message says, not which program
    wrote it. Of several rows whose signs are in one line, the first one counts.
    """

    cause: CauseName
    family: Family
    retry: Retry
    role: Role
    meaning: str
    advice: str
    source: str
    stated: tuple[str, ...] = ()
    """Signs by which the scheduler, the kernel or the driver states the reason."""
    signs: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    """They count only if the log has no sign of any cause."""


# ---- finds the signs of a line by the words that they need -----------------------------------------------------------

SHORTEST = 2
TOKEN = re.compile(
    r"(?:(?P<text>[^\\\[(){|*+?.^$]+(?![*+?{])|[^\\\[(){|*+?.^$])|\\(?P<escaped>\W)"
    r"|(?P<open>\((?:\?(?:[:=!]|-i:|<[=!]|P<\w+>))?)|(?P<or>\|)|(?P<close>\))"
    r"|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.)(?P<times>[*+?]|\{[\d,]+\})?\??"
)
"""One part of an expression, with how often it stands. The parser of `re` takes five times as long."""
WHOLE = (
    r"(?a:(?<![\w/])|(?=\W)|(?-i:(?<=[a-z])(?=[A-Z])))(?:{})(?-i:(?<!\w)|(?!\w*_[a-z]))"
    r"(?:(?-i:(?<=Error))|(?![a-z ()]{0,24}(?:[:=]| count) ?(?:0|no|none|n/a|false)(?![\w.])))"
)
"""A sign is not a part of an identifier or a directory of a path: hwloc_set_cpubind, /data/EDQUOT/. A word of a name in
camel case is one. Nor is it a value of zero: `DRAM Uncorrectable : 0`."""
LOOKS = ("(?=", "(?!", "(?<=", "(?<!")


class Sign(NamedTuple):
    """One expression of the table."""

    order: int
    rule: Rule
    strength: int
    """3: a stated reason. 2: a sign. 0: a hint."""
    pattern: str


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
        self.by_word = by_key(
            (word, Sign(order, rule, strength, pattern))
            for order, (rule, strength, pattern) in enumerate(signs)
            for word in words(pattern) or ("",)
        )

    def matches(self, text: str) -> Iterator[tuple[Sign, str]]:
        """The signs of a line and what they match, in the order of the table; hints last."""
        lower = text.casefold()
        found = {sign.order: sign for word, signs in self.by_word.items() if word in lower for sign in signs}
        for _, sign in sorted(found.items()):
            if (match := expression(sign.pattern).search(text)) is not None:
                yield sign, match[0]


@cache
def expression(pattern: str) -> re.Pattern[str]:
    return re.compile(WHOLE.replace("{}", pattern), re.IGNORECASE)


def words(pattern: str) -> frozenset[str] | None:
    """Words of which each match of a pattern contains one; null if it needs none."""
    return _needed(TOKEN.finditer(pattern))


def _needed(tokens: Iterator[re.Match[str]]) -> frozenset[str] | None:
    """The words of an expression, or of a group up to its end."""
    branches: list[frozenset[str] | None] = []
    best: frozenset[str] | None = None
    run = ""
    for token in tokens:
        text, escaped, opened, is_or, closed, times = token.groups()
        may_miss = times is not None and times.startswith(("*", "?", "{0", "{,"))
        if (literal := text or escaped) and not may_miss:
            run += literal.casefold()
            if times is None:
                continue
        best, run = _better(best, _word(run)), ""
        if opened:
            inner = _needed(tokens)
            best = best if opened in LOOKS else _better(best, inner)
        elif is_or:
            branches.append(best)
            best = None
        elif closed:
            if may_miss:
                return None
            break
    branches.append(_better(best, _word(run)))
    needed = [branch for branch in branches if branch is not None]
    return frozenset[str]().union(*needed) if len(needed) == len(branches) else None


def _word(run: str) -> frozenset[str] | None:
    return frozenset((run,)) if len(run) >= SHORTEST else None


def _better(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    """The one that fewer lines contain: long words, few of them."""
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda words: (min(map(len, words)), -len(words)))
