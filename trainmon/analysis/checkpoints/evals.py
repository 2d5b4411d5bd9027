"""Lines of a file of results → what evaluators wrote about checkpoints. Pure."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from trainmon.lib import MASK, clean, scrub
from trainmon.model import EvalResult, LogChunk, LogSpec, Run, RunSpec

RESULT = msgspec.json.Decoder(EvalResult)

NOT_FINITE = re.compile(r'"(?:[^"\\]|\\.)*"|(-?\bInfinity\b|\bNaN\b)')
"""A string of JSON, or a number that is not JSON, which json.dumps of Python writes nevertheless."""

PLACEHOLDERS = ("checkpoint", "step", "run")
"""What a command that evaluates a checkpoint may name in braces."""

PLACEHOLDER = re.compile(rf"(?<!\$)\{{({'|'.join(PLACEHOLDERS)})\}}")

STEP_AT_MOST = 10**18
"""What a database stores as a whole number."""

RESULTS_AT_MOST = 500
"""Results of a run that stay in memory, the newest: 20 tasks of 25 checkpoints."""


FILE = "evals.jsonl"
"""The file of results beside the checkpoints of a run that has no [[eval]] table."""


def eval_logs(run: RunSpec) -> tuple[LogSpec, ...]:
    """The files of results of a run, as the probe follows them: like logs."""
    if not run.evals and run.checkpoints is not None:
        path = f"{glob.escape(run.checkpoints.rstrip('/'))}/{FILE}"
        return (LogSpec(id=f"evals 1 of {run.name}", pattern=path, optional=True),)
    return tuple(LogSpec(id=f"evals {number} of {run.name}", pattern=one) for number, one in enumerate(run.evals, 1))


def is_eval_log(name: str) -> bool:
    """Whether this is the name of a file of results."""
    return re.match(r"evals \d+ of ", name) is not None


def with_chunk(run: Run, chunk: LogChunk, pattern: str) -> Run:
    """The run with the new lines of one of its files of results."""
    found, invalid = read_results(chunk.lines)
    errors = {name: text for name, text in run.evals.errors.items() if name != pattern}
    if chunk.error is not None:
        errors[pattern] = clean(scrub(chunk.error))
    evals = replace(
        run.evals,
        results=together(run.evals.results, found)[-RESULTS_AT_MOST:],
        errors=errors,
        invalid_lines=run.evals.invalid_lines + invalid,
    )
    return run if evals == run.evals else replace(run, evals=evals)


def read_results(lines: Iterable[str]) -> tuple[tuple[EvalResult, ...], int]:
    """The results in these lines, and how many lines are none."""
    found, invalid = [], 0
    for line in filter(str.strip, lines):
        try:
            result = _safe(
                RESULT.decode(NOT_FINITE.sub(_as_text, line) if "NaN" in line or "Infinity" in line else line)
            )
        except msgspec.DecodeError:
            invalid += 1
            continue
        if result.step is None and result.checkpoint is not None:
            numbers = re.findall(r"\d+", result.checkpoint.rstrip("/").rpartition("/")[2])
            result = replace(result, step=int(numbers[-1][:18]) if numbers else None)
        if result.step is None or abs(result.step) > STEP_AT_MOST:
            invalid += 1
        else:
            found.append(result)
    return tuple(found), invalid


def together(*parts: Iterable[EvalResult]) -> tuple[EvalResult, ...]:
    """All results, each once: a reader that restarts reads the end of its file again."""
    found = {msgspec.json.encode(one): one for part in parts for one in part}
    return tuple(found.values())


def describe(one: EvalResult) -> str:
    """`lm-eval, mmlu version 2, temperature 0, judge none, image sha256:…, raw outputs in /fsx/…`."""
    tasks = one.task_set and one.task_set + (f" version {one.task_set_version}" if one.task_set_version else "")
    decoding = ", ".join(f"{name} {value}" for name, value in (one.decoding or {}).items())
    facts = (
        one.evaluator,
        one.image_digest and f"image {one.image_digest}",
        tasks,
        decoding,
        one.judge and f"judge {one.judge}",
        one.rubric_version and f"rubric version {one.rubric_version}",
        one.raw_outputs and f"raw outputs in {one.raw_outputs}",
        one.evaluated_at and f"at {one.evaluated_at}",
    )
    return ", ".join(fact for fact in facts if fact)


def _as_text(found: re.Match[str]) -> str:
    """Such a number as a string, which every database stores: null is not recorded."""
    return f'"{found[1]}"' if found[1] else found[0]


def _safe(one: EvalResult) -> EvalResult:
    """The result without control characters and secrets."""
    return msgspec.convert({name: _text(name, value) for name, value in msgspec.to_builtins(one).items()}, EvalResult)


def _text(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {clean(scrub(key)): _text(key, one) for key, one in value.items()}
    if not isinstance(value, str):
        return value
    return MASK if MASK in scrub(f"{name}={value}") else clean(scrub(value))
