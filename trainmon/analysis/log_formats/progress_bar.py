"""tqdm's progress bars, as HF Trainer and Lightning draw them."""

from __future__ import annotations

import re

from trainmon.analysis.log_formats.line import number, positive

FASTEST = 1_000.0
"""Steps per second that no training reaches; tokenising and checkpoint-loading bars do."""

TIMES = (
    r"\[(?:\d{1,5}:)?\d\d:\d\d(?:<(?:[\d:]{1,12}|\?))?,\s{0,6}"
    r"(\d{1,12}(?:\.\d{1,6})?|\?)(it/s|s/it|step/s|s/step|steps/s)"
)
"""`[07:21<4:45:21,  3.84s/it`: what follows is `]`, or `, name=value …]`."""

POSTFIX = re.compile(r",\s{0,4}([^=,\]]{1,60})=([^,\]]{1,40})")


def step_time(rate: str, unit: str) -> float | None:
    """Seconds a step, from either way that tqdm gives a rate."""
    value = positive(number(rate))
    if value is None:
        return None
    return value if unit.startswith("s/") else 1 / value


def postfix(text: str, at: int) -> dict[str, str]:
    """The metrics that a bar shows behind its rate, from position `at` on."""
    end = text.find("]", at)
    return {} if end < 0 else {name.strip(): value for name, value in POSTFIX.findall(text[at : end + 1])}
