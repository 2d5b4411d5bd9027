"""A text for each sign of the table, made from its expression."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import chain
from typing import Any

from trainmon.analysis.causes.rules import RULES
from trainmon.analysis.causes.sieve import Rule, expression

CLASSES = {"DIGIT": "7", "WORD": "w", "SPACE": " ", "NOT_WORD": " ", "NOT_SPACE": "x", "NOT_DIGIT": "x"}
MOST = 60
"""Texts of one expression; each is of other branches."""


@cache
def texts() -> tuple[tuple[Rule, int, str], ...]:
    """Of each sign that proves something: its row, its strength, and the first text that it matches."""
    return tuple(_texts())


def _texts() -> Iterator[tuple[Rule, int, str]]:
    parser = import_module("re._parser")
    for rule in RULES:
        for strength, patterns in ((3, rule.stated), (2, rule.signs)):
            for pattern in patterns if rule.role != "result" else ():
                made = (text for text in _made(parser.parse(pattern)) if expression(pattern).search(text) is not None)
                if (text := next(made, None)) is not None:
                    yield rule, strength, text


def identifier(text: str) -> str:
    return re.sub(r"\W+", "_", text).strip("_")


def _made(tree: Any) -> list[str]:
    found = [""]
    for name, value in tree:
        found = [before + part for before in found for part in _parts(str(name), value)][:MOST]
    return found


def _parts(name: str, value: Any) -> list[str]:
    match name:
        case "LITERAL":
            return [chr(value)]
        case "IN":
            return [_member(*value[0])]
        case "MAX_REPEAT" | "MIN_REPEAT":
            least, _, inner = value
            return [part * least for part in _made(inner)] if least else [" " if str(inner[0][0]) == "ANY" else ""]
        case "BRANCH":
            return list(chain.from_iterable(map(_made, value[1])))
        case "SUBPATTERN":
            return _made(value[3])
        case "GROUPREF":
            return ["777"]
        case "ASSERT" | "ASSERT_NOT" | "AT":
            return [""]
        case _:  # any character
            return [" "]


def _member(name: Any, value: Any) -> str:
    match str(name):
        case "LITERAL":
            return chr(value)
        case "RANGE":
            return chr(value[0])
        case "CATEGORY":
            return CLASSES[str(value).removeprefix("CATEGORY_")]
        case _:  # it excludes some
            return "Z"
