"""Reads one line of a run's log: by the formats that are known, else by the shape that was learned. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from trainmon.analysis.log_formats.frameworks.hf_trainer import HF_TRAINER
from trainmon.analysis.log_formats.learned.learn import learn, learn_from_bar
from trainmon.analysis.log_formats.line import Format, StepLine
from trainmon.analysis.log_formats.progress import is_quiet
from trainmon.analysis.log_formats.registry import (
    BARS,
    FORMATS,
    NESTED,
    above_an_evaluation,
    parse_line,
    plain,
)
from trainmon.lib import Instant
from trainmon.model import LogShape, Progress

LEARNED = "learned"
"""The name of the format that was learned."""


def read_line(
    line: str,
    progress: Progress,
    shape: LogShape,
    at: Instant,
    own: Sequence[Format] = (),
    *,
    is_finished: bool = True,
) -> tuple[tuple[str, StepLine] | None, LogShape]:
    """What a line says of the training, with its format's name, and what is known of the log's shape after it.

    The formats of the config (`own`) and the built-in ones come first. The shape is learned only while none of them
    counts the steps. Of an unfinished line, only a progress bar is read: half a line may show half a number.
    """
    if NESTED in line:
        above = above_an_evaluation(line)
        whole = line.replace(NESTED, "") if above is None else above
        found, shape = read_line(whole, progress, shape, at, own, is_finished=is_finished)
        if above is None:  # a bar inside another one, as in each epoch
            return found and (found[0], replace(found[1], target_step=None, is_inner=True)), shape
        name, step = found or (HF_TRAINER.name, StepLine(kind="eval"))
        return (name, replace(step, evaluation="begins")), shape
    found = parse_line(line, (*own, *(FORMATS if is_finished else BARS)), prefer=progress.format)
    if (
        found is not None
        and (found[1].kind != "train" or found[1].step is not None)
        and not _is_of_another(found[1], line, shape)
    ):
        return found, shape
    is_read = progress.format not in (None, LEARNED) and progress.step is not None and progress.loss is not None
    if is_read and not is_quiet(progress, at):
        return found, shape
    shape, learned = (learn if is_finished else learn_from_bar)(shape, plain(line))
    if learned is None or (found is not None and learned.step is None):
        return found, shape
    is_known = found is not None and found[1].epoch is not None and shape.counter == "epoch"
    return (found if is_known else (LEARNED, learned)), shape


def _is_of_another(line: StepLine, text: str, shape: LogShape) -> bool:
    """Whether it is a nameless bar with a loss that its format does not know, or that of an epoch whose number stands
    above it: `10/1000 […, train_loss=3.1]`."""
    return line.kind == "bar" and (line.loss is None or shape.epoch is not None) and "loss=" in text
