"""The filter of the GPU grid: words to search for, and comparisons such as `temp>85`. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from trainmon.model import Gpu, Node

READERS: dict[str, Callable[[Gpu], float | None]] = {
    "temp": lambda gpu: gpu.temperature_c,
    "util": lambda gpu: gpu.utilization_pct,
    "mem": lambda gpu: None if gpu.memory_used_mib is None else gpu.memory_used_mib / 1024,
    "power": lambda gpu: gpu.power_w,
}
_COMPARISON = re.compile(r"(temp|util|mem|power)([<>])(\d+(?:\.\d+)?)")

Test = Callable[[Node | None, Sequence[str]], bool]
"""Of a node and the texts of its line."""


def matcher(wanted: str) -> Test:
    """`temp>85 n07`: every word must hold; a comparison holds when it does for any GPU; others are searched for."""
    tests = []
    for word in wanted.split():
        found = _COMPARISON.fullmatch(word)
        tests.append(_comparison(*found.groups()) if found else _word(word.lower()))
    return lambda node, texts: all(test(node, texts) for test in tests)


def _comparison(number: str, sign: str, limit: str) -> Test:
    read, bound = READERS[number], float(limit)

    def holds(node: Node | None, _texts: Sequence[str]) -> bool:
        values = [value for gpu in (node.gpus if node else ()) if (value := read(gpu)) is not None]
        return any(value > bound if sign == ">" else value < bound for value in values)

    return holds


def _word(word: str) -> Test:
    return lambda _node, texts: any(word in text.lower() for text in texts)
