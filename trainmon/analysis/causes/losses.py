"""Whether the loss of the training stays NaN or infinite. Pure."""

from __future__ import annotations

import re

from trainmon.analysis.causes.rules import RULE
from trainmon.analysis.causes.signs import Found, Signs

LOSS = re.compile(
    r"\b(?:(?:(?P<evaluated>val(?:id\w*)?|eval\w*|test|dev)|(?P<best>best|min|lowest))[ _/.-]{1,3})?"
    r"(?P<name>\w{0,30}loss\w{0,20})\b['\"]?\s{0,3}(?:[:=|]|is)?\s{0,3}(?:tensor\()?['\"]?"
    r"(?P<value>nan|[-+]?inf(?:inity)?|[-+]?\d[\d.]*(?:e[-+]?\d+)?)(?:\b|(?=Epoch))",
    re.IGNORECASE,
)
TRAINING_LOSS = re.compile(r"(?:(?:train|training|total|lm)_)?loss", re.IGNORECASE)
"""The name of the loss that is trained on, beside others: aux_loss, loss_ce."""
GRADIENT = re.compile(r"grad(?:ient)?[_ ]?norm['\"]?\s{0,3}[:=]\s{0,3}['\"]?(?:nan|inf)\b", re.IGNORECASE)
LAST_LOSSES = 3


def diverged(signs: Signs) -> Found | None:
    """The first of the last losses, if all of them are NaN or infinite. Those of an evaluation count only if the log
    shows none of the training."""
    seen = _last_losses(signs, True) or _last_losses(signs, False)
    if len(seen) >= 2 and all(bad for _, bad in seen):
        return Found(seen[-1][0], RULE["diverged"], "loss: nan", 2)
    return None


def _last_losses(signs: Signs, is_training: bool) -> list[tuple[int, bool]]:
    """The last lines with a loss, the last one first, and whether it is NaN or infinite. A line without a loss counts
    if its gradient is so: Megatron-LM leaves out a loss that is NaN."""
    seen: list[tuple[int, bool]] = []
    for index in dict.fromkeys(reversed(signs.progress)):
        text = signs.lines[index].text
        bad_gradient = GRADIENT.search(text) is not None
        if values := _losses(text, is_training):
            is_zero = values[0].strip("+-0.") == ""  # fp16: the loss is shown as 0, the gradient as NaN
            bad = any(value.lstrip("+-")[:1] in "nNiI" for value in values)
            seen.append((index, bad or (is_zero and bad_gradient)))
        elif bad_gradient and is_training:
            seen.append((index, True))
        if len(seen) == LAST_LOSSES:
            break
    return seen


def _losses(text: str, is_training: bool) -> list[str]:
    """The loss that is trained on; where none has its name, all of the training. Or those of the evaluation."""
    losses = [match for match in LOSS.finditer(text) if match["best"] is None]
    if not is_training:
        return [match["value"] for match in losses if match["evaluated"] is not None]
    losses = [match for match in losses if match["evaluated"] is None]
    main = [match for match in losses if TRAINING_LOSS.fullmatch(match["name"])]
    return [match["value"] for match in main or losses]
