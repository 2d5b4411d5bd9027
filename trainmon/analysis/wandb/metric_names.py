"""The metrics and settings of W&B runs: what their names mean; bounded, clean, without secrets. Pure.

Names of Megatron-LM, NeMo, nanotron, torchtitan, HF Trainer, Lightning, DeepSpeed, Composer, OLMo and Levanter.

They come from W&B's server, or from the files of its client.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import msgspec

from trainmon.lib import MASK, clean, is_secret, scrub
from trainmon.model import WandbRun

# ---- which metrics of a W&B run are its loss, its gradient norm, its speed -------------------------------------------

Role = Literal["loss", "grad_norm", "throughput", "learning_rate", "validation", "other"]

ORDER: tuple[Role, ...] = ("loss", "grad_norm", "throughput", "learning_rate", "validation", "other")
"""Of the charts, from the top."""

AT_MOST = 12
"""Charts of a run, as in the config."""

VALIDATIONS = 4
"""Validation metrics that are charted unasked: an evaluation may log a hundred."""

WITHOUT_NAMES = 6
"""How many metrics are charted if no name is known."""

NAMES: Mapping[Role, tuple[str, ...]] = {
    "loss": (
        "loss", "train/loss", "train_loss", "training/loss", "training_loss", "lm loss", "lm_loss", "lm-loss",
        "train/lm_loss", "reduced_train_loss", "loss_metrics/global_avg_loss", "loss/train/total", "loss/train",
        "train/crossentropyloss", "train/ce loss", "train/samples/train_loss", "train/train_loss", "train/total_loss",
        "total_loss", "train_loss_step", "train/loss_step", "loss_step", "train/loss_avg", "avg_loss",
    ),
    "grad_norm": (
        "grad_norm", "train/grad_norm", "grad-norm", "gradient_norm", "train/gradient_norm", "optim/total_grad_norm",
        "optim/total grad norm", "grad/norm/total", "l2_norm/grad/global", "global_grad_norm", "train/global_grad_norm",
    ),
    "throughput": (
        "tokens_per_sec", "tokens_per_second", "train/tokens_per_sec", "train/tokens_per_second", "tokens/sec",
        "throughput(tps)", "throughput/tokens_per_second", "throughput/tokens_per_sec",
        "train_tokens_per_second", "train/train_tokens_per_second", "throughput/device/tps",
        "throughput/device/tokens_per_second", "throughput/device/tokens_per_sec", "tokens_per_sec_per_gpu",
        "throughput", "train/samples_per_second", "samples_per_second",
    ),
    "learning_rate": (
        "learning_rate", "train/learning_rate", "learning-rate", "lr", "train/lr", "optim/lr", "optim/learning_rate",
        "optim/learning_rate_group0", "train/samples/lr", "lr-adamw", "lr-adam", "lr-adamw/pg1", "lr-sgd",
    ),
}  # fmt: skip
"""In lower case, the most usual first."""

STEPS = (
    "train/global_step", "trainer/global_step", "global_step", "train/step", "iteration_step", "iteration",
    "train_step", "step",
)  # fmt: skip
"""What counts the trainer's own steps: `_step` counts the calls of log(), which some trainers make at every step."""

VALIDATES = frozenset({"val", "valid", "validation", "eval", "evaluation", "test", "dev"})
TIMES = re.compile(r"runtime|per_second|per_sec|time|step|epoch|timing")
"""Of an evaluation's numbers, those that say nothing of the model."""

LOSS = re.compile(r"(?:^|[^a-z])(?:\w*loss|crossentropy|cross_entropy|nll|perplexity)(?:[^a-z]|$)")
NO_LOSS = re.compile(r"loss[ _-]?scal|aux|balanc|z[ _-]?loss|max_loss|skip")
GRAD_NORM = re.compile(r"grad(?:ient)?s?[ _/-]?norm|norm[ _/-]grad")
LEARNING_RATE = re.compile(r"(?:^|[^a-z])(?:lr|learning[ _-]?rate)(?:[^a-z]|$)")
TOKENS = re.compile(r"tok(?:en)?s?(?:[ _/-]?per[ _/-]?|/)s(?:ec(?:ond)?)?(?:[^a-z]|$)|\btps\b")
SAMPLES = re.compile(r"samples?(?:[ _/-]?per[ _/-]?|/)s(?:ec(?:ond)?)?(?:[^a-z]|$)")
A_SHARE = re.compile(r"gpu|device|rank|worker")

KNOWN = "|".join(
    (
        *(one.pattern for one in (LOSS, GRAD_NORM, LEARNING_RATE, TOKENS, SAMPLES)),
        *map(re.escape, NAMES["grad_norm"]),
        "throughput",
        rf"(?:^|[^a-z])(?:{'|'.join(sorted(VALIDATES))})(?:[^a-z]|$)",
    )
)
"""A regular expression that is found in the name, in lower case, of every metric that has a role."""


def is_validation(key: str) -> bool:
    """Whether a metric, by its name, is of an evaluation."""
    return not VALIDATES.isdisjoint(re.split(r"[^a-z]+", key.lower()))


@lru_cache(maxsize=16_384)
def role_of(key: str) -> Role:
    """The role of a metric, by its name. Every poll repeats the same thousands of names."""
    name = key.lower()
    if is_validation(key):
        return "other" if TIMES.search(name) else "validation"
    if GRAD_NORM.search(name) or name in NAMES["grad_norm"]:
        return "grad_norm"
    if LEARNING_RATE.search(name):
        return "learning_rate"
    if "throughput" in name or TOKENS.search(name) or SAMPLES.search(name):
        return "throughput"
    return "loss" if LOSS.search(name) and not NO_LOSS.search(name) else "other"


def choose(charts: Sequence[str], history_keys: Iterable[str]) -> tuple[str, ...]:
    """The metrics to chart: those that the config names, else those with the common names; the loss first."""
    if charts:
        configured = tuple(dict.fromkeys(charts))[:AT_MOST]
        loss = loss_of(configured)
        return configured if loss is None else (loss, *(key for key in configured if key != loss))
    known = [key for key in dict.fromkeys(history_keys) if not key.startswith(("_", "system/", "system."))]
    chosen = [key for role in ORDER[:4] if (key := _best(role, known)) is not None]
    chosen += sorted((key for key in known if role_of(key) == "validation"), key=_rank)[:VALIDATIONS]
    return tuple(chosen) or tuple(known[:WITHOUT_NAMES])


def loss_of(keys: Iterable[str]) -> str | None:
    """The one of these that is the training loss."""
    return _best("loss", keys)


def tokens_of(keys: Iterable[str]) -> str | None:
    """The metric that, by its name, counts the tokens per second of all GPUs."""
    return _best("throughput", (key for key in keys if TOKENS.search(key.lower()) and not A_SHARE.search(key.lower())))


def value_of(run: WandbRun, role: Role) -> float | None:
    """The latest value of the metric that has this role."""
    key = tokens_of(run.summary) if role == "throughput" else _best(role, run.summary)
    value = None if key is None else run.summary[key]
    return value if isinstance(value, (int, float)) else None


def step_of(run: WandbRun) -> int | None:
    """The trainer's step, as it logs it, else W&B's own."""
    for key in STEPS:
        value = run.summary.get(key)
        if isinstance(value, (int, float)) and value == value and abs(value) < 1e15:
            return int(value)
    return run.step


def _best(role: Role, keys: Iterable[str]) -> str | None:
    """Of those with this role the one with the most usual name; of unusual names the shortest."""
    ranks = {name: rank for rank, name in enumerate(NAMES[role])}
    fitting = [key for key in keys if role_of(key) == role]
    return min(fitting, key=lambda key: (ranks.get(key.lower(), len(ranks)), len(key), key), default=None)


def _rank(key: str) -> tuple[bool, int, str]:
    """A loss first, then short names: the means of an evaluation before those of its parts."""
    return LOSS.search(key.lower()) is None, len(key), key


# ---- the names, settings and latest values of W&B runs ---------------------------------------------------------------

NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""What W&B writes where JSON has no number."""

NAMES_AT_MOST = 300
"""The maximum number of metrics of a summary, and of settings of a config."""

NAME_LENGTH = 200
VALUE_LENGTH = 200

DEEPEST = 4
"""The maximum depth of nested mappings."""


def safe_text(value: object, limit: int = NAME_LENGTH) -> str | None:
    """A text of the server, safe to show; None for anything else."""
    return (_cleaned(value[: 4 * limit], limit) or None) if isinstance(value, str) else None


@lru_cache(maxsize=8_192)
def _cleaned(text: str, limit: int) -> str:
    """Cached, because scrubbing is slow: every poll brings the same names and settings, thousands for ten runs."""
    return scrub(clean(text, 4 * limit))[:limit]  # scrub before the cut: half a secret is not recognised


def number(value: object) -> float | None:
    """A number of the server, which writes nan and infinity as words; None for anything else."""
    try:
        return (
            float(value)
            if isinstance(value, int | float)
            else NON_FINITE.get(value)
            if isinstance(value, str)
            else None
        )
    except OverflowError:
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]  # only an int overflows


def integer(value: object) -> int | None:
    """A counter of the server."""
    found = number(value)
    return int(found) if found is not None and math.isfinite(found) else None


def read_summary(summary: Mapping[str, Any], charts: Iterable[str] = ()) -> dict[str, float | str]:
    """The latest value of each metric, charted ones first, without media and W&B's own counters.

    If there are too many, those with common names stay.
    """
    values: dict[str, float | str] = {}
    wanted = frozenset(charts)
    found = list(leaves(summary, MEDIA))
    if len(found) > NAMES_AT_MOST:  # the loss must not be dropped; finding it is slow
        wanted |= {*choose((), [name for name, _ in found]), *STEPS}
    found.sort(key=lambda leaf: leaf[0] not in wanted)  # stable: the others keep the server's order
    for name, value in found:
        key, as_number = safe_text(name), number(value)
        latest = as_number if as_number is not None else safe_text(value, VALUE_LENGTH)
        if key is not None and latest is not None and not name.startswith("_") and len(values) < NAMES_AT_MOST:
            values[key] = latest
    return values


def read_config(config: Mapping[str, Any]) -> dict[str, str]:
    """The settings as short texts. The value of a name such as `api_key` is always masked."""
    settings: dict[str, str] = {}
    for name, value in leaves(config):
        key = safe_text(name)
        if key is None or name.startswith("_") or len(settings) >= NAMES_AT_MOST:
            continue
        if isinstance(value, str) and value and is_secret(name.replace("/", ".").rsplit(".", 1)[-1], as_flag=False):
            settings[key] = MASK
            continue
        try:
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        except (TypeError, ValueError, RecursionError):
            text = type(value).__name__
        settings[key] = safe_text(text, VALUE_LENGTH) or ""
    return settings


def mapping(value: object) -> Mapping[str, Any]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


MEDIA = "_type"
"""A setting of a mapping that is one value: an image, a table."""


def leaves(values: Mapping[str, Any], mark: str = "", before: str = "", depth: int = 1) -> Iterator[tuple[str, Any]]:
    """All values with their names, nested ones as `outer.inner`. A mapping with the mark is one value."""
    for key, value in values.items():
        inner = mapping(value)
        if inner and (not mark or mark not in inner) and depth < DEEPEST:
            yield from leaves(inner, mark, f"{before}{key}.", depth + 1)
        else:
            yield f"{before}{key}", value
