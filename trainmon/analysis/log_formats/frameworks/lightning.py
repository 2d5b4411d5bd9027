"""Lightning's progress bar: `Epoch 1:   4%|▍  | 350/8000 [00:09<03:23, 37.56it/s, v_num=0, train_loss=1.46]`.

Its counter starts again in every epoch. The step here is the number of batches since the start of fit: epoch times
batches an epoch, plus the counter; it grows over epochs and is not the optimizer's step when gradients are accumulated.
Where the bar does not know its total (`350/?`), the step is the counter itself, and goes back at a new epoch.
`Epoch 1/1000:`, as other tqdm loops write it, counts epochs from 1; `Epoch 2/30: 7%|▋| 2/30` counts nothing else.
"""

from __future__ import annotations

import re

from trainmon.analysis.log_formats.line import (
    FASTEST,
    TIMES,
    Format,
    StepLine,
    number,
    postfix,
    step_time,
    stripped,
    whole,
)

BAR = re.compile(
    r"Epoch (\d{1,9})(?:/(\d{1,9}))?:\s{0,8}(?:\d{1,3}%)?(?:\|[^|]{0,400}\|)?\s{0,12}(\d{1,12})(?:/(\d{1,12}|\?)|it) "
    + TIMES
)
EVAL = re.compile(r"(?:Validation|Validating|Sanity Checking|Testing)(?: DataLoader \d{1,4})?:\s{0,8}\d{0,3}%?\|")
LOSSES = ("train_loss_step", "train_loss", "loss", "train/loss_step", "train/loss", "loss_step", "training_loss")
ELSEWHERE = ("val", "eval", "test")


def parse(line: str) -> StepLine | None:
    """Read a line of Lightning."""
    if "Epoch " not in line:
        is_eval = "|" in line and ("Validat" in line or "Sanity" in line or "Testing" in line)
        return StepLine(kind="eval") if is_eval and EVAL.match(stripped(line)) else None
    if "it/s" not in line and "s/it" not in line:
        return None
    body = stripped(line)
    found = BAR.match(body)
    seconds = None if found is None else step_time(found[5], found[6])
    if found is None or (seconds is not None and seconds < 1 / FASTEST):
        return None
    epoch, epochs, count = int(found[1]), whole(found[2]), int(found[3])
    counts_epochs = epochs is not None and whole(found[4]) == epochs and count in (epoch - 1, epoch)
    batches = 0 if counts_epochs else whole(found[4]) or 0
    before = epoch if epochs is None else max(0, epoch - 1)
    named = postfix(body, found.end())
    loss = _loss(named)
    return StepLine(
        kind="train" if loss is None else "rest",
        step=whole(named.get("global_step")) or before * batches + count,
        target_step=epochs if counts_epochs else epochs * batches if epochs and batches else None,
        loss=loss,
        grad_norm=number(named.get("grad_norm")),
        step_time_s=seconds,
        learning_rate=number(named.get("lr")),
        epoch=float(epoch),
    )


def _loss(named: dict[str, str]) -> float | None:
    others = (name for name in named if "loss" in name.lower() and not name.lower().startswith(ELSEWHERE))
    return number(next((named[name] for name in (*LOSSES, *others) if name in named), None))


LIGHTNING = Format("lightning", r"Epoch \d+[/:]", parse)
