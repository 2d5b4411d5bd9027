"""What one line of any log says of a training step. Pure."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import NamedTuple

from trainmon.analysis.log_formats.learned import names
from trainmon.analysis.log_formats.learned.names import DIVIDER, Number, in_english, numbers, whole, words
from trainmon.analysis.log_formats.learned.patterns import (
    ASIDE,
    BAR,
    BRACKETS,
    COLUMNS,
    DESCRIPTION,
    ENDLESS_BAR,
    ESPNET,
    FROM_ONE,
    GLUED,
    KNOWN_LINES,
    LISTED,
    MEASURED,
    NO_TRAINING,
    OF_SOMETHING_ELSE,
    OF_TESTING,
    OF_TRAINING,
    PAIR,
    REWRITTEN,
    ROUND,
    ROUNDED_BAR,
    TO_THE_HIGHEST,
    UNNAMED,
)
from trainmon.analysis.log_formats.line import FASTEST

OF_AN_EVALUATION = names.NOT_TRAINING | names.vocabulary(
    "step epoch loop set phase on split mode report result results metric metrics dataloader loss net output #"
)


SPEEDS = {"step_time_s", "samples_per_s", "tokens_per_s"}
OF_AN_EPISODE = re.compile(r"\W{0,8}(?i:episode)\b")
"""`Episode 50, Steps: 180`: its own; `Episodes: 50, Steps: 5000`: those of all."""
PREPOSITIONS = names.vocabulary("at after for in of on")


class Line(NamedTuple):
    """What one line says. It has a step, or an epoch's batch, or neither."""

    step: int | None = None
    target: int | None = None
    counter: str = ""
    """What counts: lines of one shape have the same."""
    is_named: bool = False
    """Whether the counter is named well enough to be believed in a single line."""
    loss: float | None = None
    is_part: bool = False
    """Whether the loss is one of several."""
    epoch: int | None = None
    epochs: int | None = None
    is_from_one: bool = False
    """Whether its way to name the epoch is that of trainers that count them from 1."""
    is_to_the_highest: bool = False
    """Whether `epochs` is the highest number of an epoch, counted from 0: one less than there are."""
    batch: int | None = None
    batches: int | None = None
    is_bar: bool = False
    is_timed: bool = False
    """Whether it is a step even without a loss: a speed beside an epoch, a learning rate beside a speed or a total."""
    has_quality: bool = False
    """Whether it says how good the model is in training: an accuracy, a reward, parts of a loss."""
    metrics: tuple[tuple[str, float], ...] = ()
    """Its other numbers, by their fields of TrainingMetrics."""

    @property
    def counts(self) -> bool:
        return self.step is not None or self.batch is not None


RARE = (*(pattern for pattern, _ in REWRITTEN), NO_TRAINING, TO_THE_HIGHEST)
ZEROS = str.maketrans("123456789", "000000000")


@lru_cache(256)
def _may_be_rare(structure: str) -> bool:
    """Whether one of the patterns of few lines may match a line that is this one with other digits than its zeros."""
    return any(pattern.search(structure) for pattern in RARE)


def read(text: str) -> Line | None:
    """Read one line, or several that were joined. None where it says nothing of training."""
    if (line := _as_a_whole(text)) is not None:
        return line
    text = in_english(text)
    is_rare = _may_be_rare(text.translate(ZEROS))  # to try them all took a fourth of the time of this function
    for pattern, replacement in REWRITTEN if is_rare else ():
        # `sub` reads the replacement anew for each line, which took half of it
        text = pattern.sub(replacement, text) if pattern.search(text) is not None else text
    found = _turned(_paired(text, numbers(text)))
    bar = BAR.search(text) or ENDLESS_BAR.search(text) if "it" in text or "%" in text else None
    bar = bar or (ROUNDED_BAR.search(text) if "Progress on" in text else None)
    if not found or (bar is not None and _is_of_something_else(_description(text, bar))):
        return None
    if bar is not None:
        found = [one for one in found if not bar.start() <= one.start < bar.end()]
    counter, loss = _counter_and_loss(text, found)
    if loss is None and (boosted := ROUND.match(text)) is not None:
        return Line(step=int(boosted["step"] or boosted["count"]), counter="unnamed", is_timed=True)
    first = min((one.start for one in (counter, loss) if one is not None), default=len(text))
    if _is_of_an_evaluation(text[max(0, first - 80) : first]) or (is_rare and NO_TRAINING.search(text)):
        return None
    epoch = next((one for one in found if names.is_epoch(one.name) and one.text.rstrip(".").isdecimal()), None)
    if epoch is None and counter is not None and counter.name[-1] == "step" and counter.total_count:
        # `iteration: 48 step: 106/302`, which may begin again at the next one
        epoch = next((one for one in found if names.counter(one.name) == names.ITERATIONS and not one.total), None)
    has_quality = _has_quality(text, found, epoch)
    if epoch is not None and epoch.name[-1] == "epochs" and not (epoch.total or loss or has_quality) and len(found) > 1:
        epoch = None  # `'lr': 0.1, 'epochs': 30` are settings
    line = Line(
        loss=None if loss is None else loss.value,
        is_part=loss is not None and (names.loss(loss.name) or 0) >= names.NAMED_LOSS,
        is_named=loss is not None and not {"train", "training"}.isdisjoint(loss.name),
        epoch=None if epoch is None else epoch.as_count,
        epochs=None if epoch is None else epoch.total_count,
        is_from_one=_names_an_epoch(text) and FROM_ONE.search(text) is not None,
        is_to_the_highest=is_rare and TO_THE_HIGHEST.search(text) is not None,
        is_bar=bar is not None,
        has_quality=has_quality,
        metrics=_metrics(found),
    )
    line = _with_batch(_with_counter(line, counter, found), text, counter)
    if not line.counts and bar is not None and dict(line.metrics).get("step_time_s", 1) > 1 / FASTEST:
        line = _with_bar(line, bar, _description(text, bar))
    elif bar is not None and line.epoch is None and line.target is None and line.step == whole(bar["done"]):
        line = line._replace(target=whole(bar["of"]))
    metrics = dict(line.metrics)
    is_timed, has_rate = not SPEEDS.isdisjoint(metrics), "learning_rate" in metrics
    is_of_training = line.epoch is not None or (line.target is not None and "train" in text.lower())
    if line.counts and ((is_timed and is_of_training) or (has_rate and (is_timed or line.target))):
        line = line._replace(is_timed=True)
    listed = None if line.counts else LISTED.match(text)
    if listed is not None:
        return line._replace(
            step=int(listed["step"]),
            counter="listed",
            loss=float(listed["loss"].rstrip(", ")) if listed["loss"] and loss is None else line.loss,
            metrics=(("learning_rate", float(listed["rate"])), *line.metrics),
        )
    return _with_unnamed_counter(line, text, found, loss) if not line.counts and loss is not None else line


def _names_an_epoch(text: str) -> bool:
    """Whether patterns of epochs may match: without that word, they are a fifth of the time of a line."""
    return "epoch" in text.lower()


def _has_quality(text: str, found: list[Number], epoch: Number | None) -> bool:
    """Whether it says how good the model is, and not in an evaluation."""
    parts = [one.start for one in found if one.name and "." in one.text and names.PARTS.issuperset(one.name)]
    places = [
        *(
            one.start
            for one in found
            if names.is_quality(one.name)
            and ("." in one.text or not {"reward", "training", "train"}.isdisjoint(one.name))
        ),
        # `Recon: 0.0021 | KL: 0.0205`
        *(parts if len(parts) > 1 else ()),
        # `BCER train=5%`, `Epoch 3: train=0.128 valid=0.204`, `Epoch 3: Train_rf 0.4856`
        *(one.start for one in found if one.name[-1:] == ("train",) and (epoch is not None or len(one.name) > 1)),
        *(
            one.start
            for one in found
            if one.name[:1] in (("train",), ("trn",)) and "." in one.text and epoch is not None
        ),
        *(columns.start() for columns in (COLUMNS.finditer(text) if _names_an_epoch(text) else ())),
    ]
    return bool(places) and not OF_TESTING.search(text, 0, max(places))


def _counter_and_loss(text: str, found: list[Number]) -> tuple[Number | None, Number | None]:
    """The numbers that most likely are the step and the loss of training."""
    counts = [one for one in found if not one.unit and one.as_count is not None]
    # `44543/50000: episode: 592`, `Epoch: 104/14999 | Episodes: 32`
    has_share = any(one.total_count and (not one.name or names.is_epoch(one.name)) for one in counts)
    counters = [
        one
        for one in counts
        if (rank := names.counter(one.name)) is not None
        and (rank < names.EPISODES or not (has_share or "." in one.text))
    ]
    losses = _losses(text, found, is_counted=bool(counters))
    has_episodes = "episode" in text.lower()  # whose steps add up to a total that grows
    counter = min(  # `total_steps: 500 | step: 195`, `it: 195 | steps: 625`: what may be the same in each line is last
        counters,
        key=lambda one: (
            names.is_target(one.name) and not has_episodes,
            one.name == ("steps",) and OF_AN_EPISODE.match(text) is not None,
            names.PLURALS.get(one.name, names.counter(one.name) or 0),
        ),
        default=None,
    )
    loss = min(  # of one kind, their total or the one without a further word
        losses,
        key=lambda one: (names.loss(one.name) or 0, names.TOTALS.isdisjoint(one.name), one.name != ("loss",)),
        default=None,
    )
    return counter, loss


def _as_a_whole(text: str) -> Line | None:
    """A line of which the pattern is known."""
    for pattern, counter, is_named, is_timed in KNOWN_LINES:
        if (found := pattern.match(text)) is not None:
            fields = found.groupdict()
            step, target, epoch = (whole(fields.get(name)) for name in ("step", "target", "epoch"))
            loss = float(fields["loss"]) if "loss" in fields else None
            return Line(step, target, counter, is_named, loss, epoch=epoch, is_timed=is_timed)
    return None


def _paired(text: str, found: list[Number]) -> list[Number]:
    """`epoch/iter: 1/515`: two names and two numbers. `Epoch step: 150/1000` is one name."""
    for at, one in enumerate(found):
        if (
            one.total
            and len(one.name) == 2
            and one.name[0] in names.EPOCHS
            and names.counter(one.name[1:]) is not None
            and " ".join(one.name) not in text[: one.start].lower()
        ):
            found[at : at + 1] = (
                one._replace(name=one.name[:1], total=None),
                one._replace(name=one.name[1:], text=one.total, total=None),
            )
            break
    return found


def _turned(found: list[Number]) -> list[Number]:
    """`training loss at step 100: 0.5`, `Loss step 100: 0.5`: the second number is the loss, the first one counts."""
    for at, one in enumerate(found[:-1]):
        places = [n for n, word in enumerate(one.name) if word in PREPOSITIONS]
        is_counter = names.counter(one.name[-1:]) is not None or one.name == ("loss", "epoch")
        if is_counter and not places and one.as_count is not None:
            places = [len(one.name) - 1]
        between = min(places, default=0)
        if (
            between
            and found[at + 1].name in ((), ("is",), ("was",), ("training",), ("train",))
            and (
                one.name[:between] == ("score",)
                or names.loss(one.name[:between]) is not None
                or names.is_quality(one.name[:between])
            )
        ):
            found[at : at + 2] = (
                one._replace(name=one.name[places[-1] + 1 :] or one.name[-1:]),
                found[at + 1]._replace(name=("loss",) if one.name[0] == "score" else one.name[:between]),
            )
    return found


def _losses(text: str, found: list[Number], *, is_counted: bool) -> list[Number]:
    """The losses, with a bare total of several parts: `policy=1.7 mse=0.2 total=2.6`, `train==[0.8=0.7 + 0.1]`."""
    losses = [
        one
        for one in found
        if ("." in one.text or not one.total) and one.unit not in names.SECONDS and names.loss(one.name) is not None
    ]
    totals = [one for one in found if one.name == ("total",) and not one.text.isdecimal() and not one.unit]
    if not losses:
        sums = [
            one
            for one in found
            if one.name == ("train", "total") or (one.name == ("train",) and text.startswith("=", one.end))
        ]
        is_sum = is_counted and (PAIR.search(text) or any(not names.PARTS.isdisjoint(one.name) for one in found))
        return _by_a_letter(found, is_counted=is_counted) or sums or (totals if is_sum else [])
    is_of_parts = min(names.loss(one.name) or 0 for one in losses) >= names.NAMED_LOSS
    return totals or losses if is_of_parts else losses


def _by_a_letter(found: list[Number], *, is_counted: bool) -> list[Number]:
    """`G: 1.04 | D: 0.12`: bare letters are the losses of a GAN where both stand. `[9/16] [L1: 5.2]` is one alone.
    So is an L with its average. T may be the sum of others: `B: 6.1 | C: 4.5 | T: 10.6`."""
    letters = [one for one in found if len("".join(one.name)) == 1 and not one.unit and "." in one.text]
    values = [one.value for one in letters]
    if len(values) > 2 and letters[-1].name == ("t",) and math.isclose(sum(values), 2 * values[-1], rel_tol=0.01):
        return letters[-1:]
    is_alone = not is_counted or any(one.name == ("avg", "l") for one in found)
    letters = [one for one in letters if one.name in (("g",), ("d",), ("l",))]
    return letters if {one.name for one in letters} in ({("g",), ("d",)}, {("l",)} if is_alone else set()) else []


def _metrics(found: list[Number]) -> tuple[tuple[str, float], ...]:
    metrics: dict[str, float] = {}
    for one in found:
        if (field := names.metric(one.name)) is not None:
            metrics.setdefault(field, one.value)
        elif (speed := names.speed(one.name, one.unit)) is not None and math.isfinite(one.value) and one.value > 0:
            field, factor, is_inverted = speed
            metrics.setdefault(field, factor / one.value if is_inverted else factor * one.value)
    return tuple(metrics.items())


def _with_counter(line: Line, counter: Number | None, found: list[Number]) -> Line:
    if counter is None:
        return line
    others = (one.as_count for one in found if one is not counter and names.is_target(one.name))
    target = counter.total_count or next(others, None)
    is_named = line.is_named or (names.counter(counter.name) or 0) <= names.COUNTERS["batch"]
    return line._replace(step=counter.as_count, target=target, counter=" ".join(counter.name[-2:]), is_named=is_named)


def _with_batch(line: Line, text: str, counter: Number | None) -> Line:
    """An epoch and a batch of it, unless the line has a counter that goes on over the epochs."""
    rank = 99 if counter is None else names.counter(counter.name) or 0
    if rank <= names.UPDATES:
        return line
    of_epoch = (ESPNET.search(text) or GLUED.search(text)) if _names_an_epoch(text) else None
    pair = PAIR.search(text) or of_epoch or BRACKETS.match(text)
    if pair is None:
        is_of_epoch = (
            rank >= names.ITERATIONS and line.epoch is not None and line.target and (line.step or 0) <= line.target
        )
        if not is_of_epoch:
            return line
        return line._replace(step=None, target=None, batch=line.step, batches=line.target)
    if counter is not None and rank < names.COUNTERS["batch"] and not pair.start() <= counter.start < pair.end():
        return line
    fields = pair.groupdict()
    batch, batches = int(pair["batch"]), whole(fields.get("batches"))
    if batches is not None and batch > batches:
        return line
    return line._replace(
        step=None,
        target=None,
        counter="batch of epoch",
        is_named=True,
        epoch=int(pair["epoch"]),
        epochs=whole(fields.get("epochs")) or line.epochs,
        batch=batch,
        batches=batches,
    )


def _with_bar(line: Line, bar: re.Match[str], description: str) -> Line:
    """A bar counts if its description names training, or if it shows a loss."""
    done, of = (
        round(float(text.rstrip("k").replace(",", "")) * (1000 if "k" in text else 1)) if text else None
        for text in (bar["done"], bar["of"])
    )
    # Epoch 44/65, Steps:  68%|██▌ | 6750/10000; Epochs:   9%|█ | 9/100 […] Epoch 10/100
    is_of_the_run = description.lower().rstrip().endswith(("steps", "epochs"))
    if line.epoch not in (None, done) and not is_of_the_run:  # a bar of epochs has the epoch itself
        return line._replace(batch=done, batches=of, counter="batch of epoch", is_named=True)
    if line.loss is None and (bar.re is not BAR or not OF_TRAINING.search(description)):
        return line if bar.re is BAR or OF_SOMETHING_ELSE.search(bar[0]) else line._replace(target=of)
    return line._replace(step=done, target=of, counter="bar" if description.strip() else "n/total", is_named=True)


def _with_unnamed_counter(line: Line, text: str, found: list[Number], loss: Number) -> Line:
    """A counter that no word names: `n/total`, the first number of the line; at last the epoch itself."""
    share = next(
        (
            one
            for one in found
            if one.total_count
            and one.as_count is not None
            and not set(one.name) - {"train", "training", "process", "progress", "i"}
            and not text.endswith("/", 0, one.start)  # 23/6 of 21/23/6
        ),
        None,
    )
    unnamed = UNNAMED.search(text[: loss.start])
    start = share.start if share is not None else unnamed.start() if unnamed is not None else 0
    if _is_of_an_evaluation(text[max(0, start - 80) : start]):
        return line._replace(loss=None, metrics=())  # val: [125][0/6]
    if share is not None and line.epoch not in (None, share.as_count) and not ASIDE.search(text, share.end):
        return line._replace(batch=share.as_count, batches=share.total_count, counter="batch of epoch", is_named=True)
    if share is not None:
        return line._replace(step=share.as_count, target=share.total_count, counter="n/total", is_named=True)
    if unnamed is not None:
        step = int(next(filter(None, unnamed.group("step", "first", "bare", "braced"))))
        metrics = {name for name, _ in line.metrics}
        is_timed = not SPEEDS.isdisjoint(metrics) or any(one.unit in names.SECONDS for one in found)
        return line._replace(
            step=step,
            target=whole(unnamed["target"]),
            counter="unnamed",
            is_named=is_timed and "learning_rate" in metrics,
        )
    beside = next((one for one in found if one.start > loss.start), None)
    if beside is not None and not beside.name and beside.start - loss.end <= 2 and loss.text.isdecimal():
        return line._replace(step=loss.as_count, loss=beside.value, counter="beside the loss")  # Tacotron 2
    if line.epoch is None:
        phase = (one for one in found if _is_a_phase(one.name) and one.start < loss.start and one.text.isdecimal())
        one = next(phase, None)
        return line if one is None else line._replace(step=one.as_count, target=one.total_count, counter="train")
    is_named = (
        line.epochs is not None
        or not {"train", "training"}.isdisjoint(loss.name)
        or ("." in loss.text and (bool(line.metrics) or text.lstrip(" *=-#[|(").lower().startswith("ep")))
    )
    return line._replace(step=line.epoch, target=line.epochs, counter="epoch", is_named=is_named)


def _is_a_phase(name: names.Name) -> bool:
    """`Train 3, loss: 1.49`, `student step 20 of 90: loss 1.4`: beside a loss, a counter is no prose."""
    if name in (("train",), ("training",), ("end", "of", "epoch"), ("episode",)):
        return True
    is_counter = (names.counter(name[-1:]) or 99) <= names.COUNTERS["batch"]
    return is_counter and names.NOT_TRAINING.isdisjoint(name) and not names.is_target(name)


def _description(text: str, bar: re.Match[str]) -> str:
    """What stands before a bar, without the fields before it."""
    return re.split(
        r"[|\[\]{}\r]", MEASURED.sub("", text[max(0, bar.start() - DESCRIPTION) : bar.start()]).rstrip(" :]")
    )[-1]


def _is_of_something_else(description: str) -> bool:
    return OF_SOMETHING_ELSE.search(description) is not None and not re.match(r"\W*train", description, re.IGNORECASE)


@lru_cache(1024)
def _is_of_an_evaluation(head: str) -> bool:
    """Whether a field before the numbers says so: `[Eval] step: 100`, `Test: [10/98]`."""
    fields = [set(words(part)) for part in DIVIDER.split(MEASURED.sub(",", head))[-4:]]
    return any(field and field <= OF_AN_EVALUATION and not names.NOT_TRAINING.isdisjoint(field) for field in fields)
