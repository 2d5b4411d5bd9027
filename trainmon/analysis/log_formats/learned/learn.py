"""Reads a log line by line and learns its shape: what counts the steps, and which lines make one step. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from trainmon.analysis.log_formats.learned import names
from trainmon.analysis.log_formats.learned.line import SPEEDS, Line, read
from trainmon.analysis.log_formats.learned.names import LONGEST, in_english, numbers, words
from trainmon.analysis.log_formats.learned.patterns import ASIDE, COUNT, OF_TESTING
from trainmon.analysis.log_formats.line import StepLine
from trainmon.lib.log_prefix import prefix_of, without_prefix
from trainmon.model import LogShape

# ---- tables with a heading, and boxes with a row for each value: YOLO, fastai, spaCy, CSV, stable-baselines3 ---------

LONGEST_HEADING = 600
BORDERS = ("|", "│", "┃")
BORDER = re.compile(r"[|│┃]")
GAP = re.compile(r"\s{2,}|\t")
RULE = re.compile(r"^[\s\-=+*_|─━┄┈═╭╮╰╯┌┐└┘├┤┬┴┼┏┓┗┛┡┩╇╈╋╂:#]{3,}$")
"""A line that draws only."""
BOX_ROW = re.compile(
    r"^\s*[|│┃]\s*(?P<name>[^|│┃]{1,60}?)\s*(?:[|│┃]|\s{2,})\s*(?P<value>[^|│┃\s][^|│┃]{0,60}?)?\s*[|│┃]\s*$"
)
CELL = re.compile(r"#|[A-Za-z_][\w .@/()%-]{0,40}")
VALUE = re.compile(r"(?<![A-Za-z@])\d|\b(?:nan|inf)\b")
YOLO = ("box", "GIoU", "total")
"""Losses of YOLOv3 and YOLOv5, where the next column is the memory of the GPU."""
WHOLE = re.compile(r"\.0{3,9}$")
"""A table of floats only prints epoch 3 as 3.000000."""


def columns_of(line: str) -> tuple[str, ...]:
    """The columns of a table whose heading this line is; empty for any other line."""
    lowered = line.lower()
    if len(line) > LONGEST_HEADING or not any(word in lowered for word in ("loss", "rmse", "gpu_mem", "reward")):
        return ()
    bare = re.sub(r"^\s{0,8}\d{1,9}\t", "line\t", line.removeprefix("# "))  # behind `cat -n`
    for split in _splits(bare) if VALUE.search(bare) is None else ():  # a row of the table has values
        cells = [f"{cell} loss" if cell in YOLO and "gpu_mem" in lowered else cell for cell in split]
        if len(cells) < 2 or any(CELL.fullmatch(cell) is None for cell in cells):
            continue
        if len(cells) == 2 and not GAP.search(line.strip()) and not BORDER.search(line) and "," not in line:
            continue  # two words
        columns = [words(cell) for cell in cells]
        if any(_is_counter(name) for name in columns) and any(
            names.loss(name) is not None or ("reward" in name and (BORDER.search(line) or GAP.search(line.strip())))
            for name in columns
        ):
            return tuple("epoch" if cell == "E" else cell for cell in cells)
    return ()


def row_of(columns: Sequence[str], line: str) -> str | None:
    """The row as `name: value` pairs with what follows it, a progress bar for example; None for what is no row."""
    return next((pairs for cells in _splits(line) if (pairs := _pairs(columns, cells, line)) is not None), None)


def _pairs(columns: Sequence[str], cells: Sequence[str], line: str) -> str | None:
    if len(cells) < min(len(columns), 5) or not cells[0]:  # Chainer leaves the last ones empty
        return None
    values = [WHOLE.sub("", cell.rstrip(":]").lstrip("[").partition(",")[0]) for cell in cells[: len(columns)]]
    for column, value in zip(columns, values, strict=False):
        name = words(column)
        if _is_counter(name) and not re.fullmatch(r"\d{1,12}(?:/\d{1,12}|\.0)?", value):
            return None
        if names.loss(name) is not None and not re.match(r"[-+]?[\d.]|nan|inf", value):
            return None
    rest = line[line.rfind(values[-1]) + len(values[-1]) :] if values[-1] else ""
    return ", ".join(f"{column}: {value}" for column, value in zip(columns, values, strict=False)) + f", {rest}"


def box_row(line: str) -> str | None:
    """A box's row as a `name: value` pair; None for what is none."""
    found = BOX_ROW.match(line)
    return None if found is None else f"{found['name']}: {found['value'] or ''}, "


def _is_counter(name: tuple[str, ...]) -> bool:
    return names.counter(name) is not None or names.is_epoch(name) or name == ("e",)


def _splits(line: str) -> Iterator[list[str]]:
    """The cells of a line: between borders, commas, wide gaps, blanks."""
    if BORDER.search(line):
        yield [cell.strip() for cell in BORDER.split(line.strip().strip("|│┃"))]
    else:
        if line.count(",") >= 2 or re.fullmatch(r"[\w.+-]+,[\w.+-]+", line.strip()):
            yield [cell.strip() for cell in line.split(",")]
        yield GAP.split(line.strip())
    yield line.split()


LONGEST_BLOCK = 80
"""Lines."""
LONGEST_TEXT = 6_000
LONGEST_EXAMPLE = 500
CANDIDATES = 4
OTHERS = 20
"""Steps by another counter in a row after which that one counts: the trainer was replaced. Fewer where the first had
counted fewer."""

SIGNS = (
    "loss",
    "step",
    "iter",
    "itéra",
    "epoch",
    "episode",
    "round ",
    "batch",
    "update",
    "%|",
    "xent",
    "cost",
    "nll",
    " l_",
    "up. ",
    "tick ",
    "---",
    "nan   ",
    ": done ",
    "s (- ",
    "% (",
    "rmse",
    "learn:",
    "learn ",
    "-error:",
    "'s l",
    "[l1",
    " avg, ",
    " lr ",
    " || ",
    "]\t",
    "%)  ",
    "results *",
    "checkpoint info",
    "checkpoints for",
    "logprob",
    "progress on:",
    " g=",
    " g[",
    "train ",
)
"""What a line has, in lower case, that may be of a step. A line without any is skipped in a microsecond."""
OPEN_DICT = re.compile(r"(?:^|[\s:])\{\s{0,8}(?:['\"]|$)")
PAIR = re.compile(
    r"^\W{0,12}[A-Za-z][\w/ .()@-]{0,80}?\s?[:=]\s*['\"]?[-+]?[\d.ni](?:[\w.,+-]|\s?%)*['\"]?\s*"
    r"(?:\w{0,6}|\[\w{1,6}\])[,\s]*$"
)
LABEL = re.compile(r"[A-Za-z][\w /.()-]{0,60}?\s?[:=]")
AT_A_RATE = re.compile(
    r"(?i:\b(?:epoch|step|iter|iteration)\b)\W{0,3}\d{1,12}\W{1,3}(?i:lr|learning[ _-]rate(?: is)?)\W{1,3}\d"
)
"""`epoch 6 lr 4.8e-01` is a step even without a loss; `step 5: we set lr to 0.1` and `epochs=20, lr=0.1` are not."""
EPOCH_TOOK = re.compile(
    r"(?i:(?!.*(?:\b|_)(?:eval|test|valid|infer|predict)).*\bepoch)\W{0,3}\d{1,12}"
    r"(?:(?:/\d{1,12})?\W{1,3}(?:\w{1,12}\W{1,3}){0,3}?(?i:in|took|time|taken)|/\d{1,12}(?=.{0,24}$))\W{1,9}"
    r"(?:(?:\d{1,4}m ?)?[\d.]{1,12} ?s(?:ec)?|[\d:]{4,12}$)"
)
"""`Epoch 3 in 1.23 sec`, `epoch 3/5  1.23s`, without a loss. Two lines are needed."""
SHARE_OF_AN_EPOCH = re.compile(r"\W{0,8}epoch\W{1,3}\d{1,6}\W{1,3}\d{1,9} ?/ ?\d{1,9}\W{0,4}$", re.IGNORECASE)
"""`Epoch 3: 9172/10000`: how many of a test were right."""
AT_A_GLOBAL_STEP = re.compile(r"\W{0,8}epoch\W{1,4}\d{1,6}\W{1,4}global[ _]step\W{1,3}\d{1,12}\W{0,4}$", re.IGNORECASE)
"""`Epoch: 677, global_step=69222400`, without a loss. Two lines are needed."""
FOR_ALL = ("", "bar", "n/total", "batch of epoch")
"""Counters that a summary of an epoch does not make those of one epoch."""
IS_OVER = re.compile(r"\b(?:end|ended|finished|done|completed?)\b", re.IGNORECASE)
"""`Epoch 3 finished`: what follows is of the next one."""
BELIEVED = re.compile(
    r"(?i:train\w{0,3})\W{1,3}\d{1,6}/\d{1,6}\]?\W{1,3}\d{1,9}/\d{1,9}\]|.*\btrain_(?:acc|perplexity|ppl|reward)\w{0,5}[:=]"
)
"""`Train: [1/50][1/157]`, `Batch 859, train_perplexity=2.1`: a single line is believed."""
ANNOUNCED = re.compile(
    r"(?P<rule>[*=~#-]{3,80}(?=.*[*=~#-]{3}$))?\W{0,80}(?:(?:now|start(?:ing|ed)?|begin(?:ning)?|train(?:ing)?|running"
    r"|entering|going|online|in|into|of|info)\W{1,4}){0,4}epoch\W{0,4}(?P<epoch>\d{1,6})"
    r"(?:\W{1,3}(?:begin|start|complete|finish|done|end)\w{0,3})?(?:\W{0,3}(?:/|of|total)\W{0,3}(?P<epochs>\d{1,6}))?"
    r"(?:\W{1,3}(?:begin|start|complete|finish|done|end)\w{0,3})?"
    r"(?:\.? [\[(](?!val|test|eval)[^\])]{1,60}[\])])?\W{0,80}$",
    re.IGNORECASE,
)
"""`=== Beginning epoch 24 of 600 ===`, `online epoch # 3 [batchSize = 64]`, `Epoch 3 done`: an epoch begins or ends.
`epoch: 8` may be a setting."""
IN_ALL = re.compile(
    r"\W{0,12}(?:start|begin|train|run)\w{0,5}(?: (?!no|warm|freez|froz|last|more|another)\w{1,12}){0,4}? for"
    r" (?P<stated>\d{1,6}) (?:(?!warm|more)\w{1,12} )?epoch"
    r"|(?:(?=.{0,4000}(?:Namespace\(|batch[_ -]?size)).{0,4000}?(?<![\w-])(?:(?:num|n|nb|max|total)[_ ]epochs?|epochs)"
    r"|\W{0,12}(?=[^,]{1,40}$)(?:num|n|nb|max|total)[_ ]epochs?)['\"]?\s{0,3}[=:]\s{0,3}(?P<set>\d{1,6})\b(?!\.)",
    re.IGNORECASE,
)
"""How many epochs there will be: `Starting training for 5 epochs`, `Namespace(lr=0.1, num_epochs=5)`,
`batch_size: 8, epochs: 5`, `num_epochs: 5` alone."""
OUTER = re.compile(r"\W{0,12}\w{4,12}\W{1,3}\d{1,6} ?/ ?\d{1,6}\W{0,80}$")
"""`Iteration 3/10` alone: what begins to count below it anew is of this one, as of an epoch."""
EVALUATOR = re.compile(r"(?:(?i:tester|evaluator)\.(?:py|cc|cpp)|caffe\.cpp):\d")
"""A source file in front of a line that says that it is no line of training: Caffe trains in its solver."""
AT_A_SPEED = re.compile(
    r"(?i:(?!.*\b(?:eval|test|valid|infer|generat|sampling|denois|prompt|prefill|decod|download|request))"
    r".{0,80}\b(?:step|iter|iteration)\b[\s:=\[(]{0,3}\d{1,12}(?:\s?/\s?\d{1,12})?[\s:,|\-\])(]{1,4}"
    r"(?:(?:speed|throughput)\W{1,3})?(?:[\d.,]{1,12}[kKM]?\s?)?(?:it"
    r"|iters?|steps?|tok|toks|tokens?|samples?|imgs?|images?|seqs?|sequences?|examples?)(?:/| per )s(?:ec|econd)?\b)"
)
"""A step right before a speed, without a loss: `step 195 | 120000 tok/s`. Two lines are needed, as where it stands
beside an accuracy or a reward."""
EVALUATION = re.compile(
    r"\W{0,12}(?:(?:eval\w{0,6}|validation|test|dev) results|checkpoint info(?:rmation)?)\W{0,12}$", re.IGNORECASE
)
"""`***** Eval results *****`, `Checkpoint information:`: the global step and the loss below are not the training's."""
BEST = re.compile(r"\bbest (?:iteration|round|epoch|step) (?:is|was):$", re.IGNORECASE)
"""`Did not meet early stopping. Best iteration is:`, and the next line is that of a step that is over."""
CONTINUED = re.compile(r"^(?:\s|[•├└│─]{1,4}\s|[*-]{1,2}\s|\{)")
"""A line that goes on with what a header began."""

Learned = tuple[LogShape, StepLine | None]


def learn(shape: LogShape, line: str) -> Learned:
    """Take in a line that is free of escape sequences: the shape after it, and the step that it completes."""
    line = line[:LONGEST]
    is_nothing = not (shape.block or shape.columns or _may_be_of_a_step(line))
    if is_nothing or EVALUATOR.search(line[: prefix_of(line).end]):
        return shape, None
    line = without_prefix(line)
    bare = line.strip()
    if ("pochs" in line or "poch(s" in line or "_epoch" in line) and (told := IN_ALL.match(bare)) is not None:
        shape = replace(shape, epochs=int(told["stated"] or told["set"]))
    if shape.block == "dict":
        return _in_dict(shape, bare)
    pair = box_row(line) if shape.block_lines < LONGEST_BLOCK and bare[:1] in BORDERS else None
    if pair is not None and not (columns_of(line) or (shape.columns and row_of(shape.columns, line))):
        rows = (shape.text, shape.block_lines) if shape.block == "box" else ("", 0)
        shape = replace(shape, block="box", text=(rows[0] + pair)[:LONGEST_TEXT], block_lines=rows[1] + 1)
        return _in_box(shape)
    if shape.block == "box":
        shape, step = _taken(_closed(shape), read(shape.text), shape.text)
        if step is not None:
            return shape, step
    if not bare or RULE.match(line):
        return shape, None
    if "{" in bare and "}" not in bare and OPEN_DICT.search(bare):
        header = f"{shape.text}\n" if shape.block == "header" else ""
        return replace(shape, block="dict", text=header + bare), None
    if EVALUATION.match(bare):
        return replace(_closed(shape), block="header", is_evaluation=True), None
    if bare.endswith(":") and BEST.search(bare):
        return replace(_closed(shape), block="header", text=bare), None
    if columns := columns_of(line):
        return replace(shape, columns=columns), None
    row = row_of(shape.columns, line) if shape.columns else None
    found = read(row or line)
    if row is not None:
        return _taken(shape, found and found._replace(is_named=True), line)
    return _in_header(shape, line, found) if shape.block == "header" else _alone(shape, line, found)


def learn_from_bar(shape: LogShape, line: str) -> Learned:
    """Take in a line without an end: only a progress bar is whole before its end, others may show half a number."""
    found = read(line) if "%" in line and line.rstrip().endswith("]") else None
    if found is None or not found.is_bar:
        return shape, None
    return _of_an_epoch(shape, line) if is_below_an_epoch(shape) and not found.counts else _taken(shape, found, line)


def _may_be_of_a_step(line: str) -> bool:
    lowered = in_english(line).lower()
    return (
        any(map(lowered.__contains__, SIGNS))
        or any(map(line.__contains__, BORDERS))
        or line.rfind("{") > line.rfind("}")
        or COUNT.search(line, len(line) - 32) is not None  # at its end, behind a prefix
    )


def _closed(shape: LogShape) -> LogShape:
    return replace(shape, block="", text="", block_lines=0)


def _in_dict(shape: LogShape, bare: str) -> Learned:
    """A dict that is printed over several lines, perhaps after a header that has the step."""
    text = f"{shape.text} {bare}"
    if "}" not in bare and len(text) < LONGEST_TEXT:
        return replace(shape, text=text), None
    header, _, printed = text.rpartition("\n")
    found = read(printed)
    if header and (found is None or not found.counts):
        found = read(f"{header} | {printed}")
    return _taken(_closed(shape), found, text)


def _in_box(shape: LogShape) -> Learned:
    """A box whose end may not be there yet. Only steps count, and what counted before: a lower rank hardly follows."""
    found = read(shape.text)
    rank = None if found is None else names.counter(tuple(found.counter.split()))
    if found is None or (found.counter != shape.counter and (rank is None or rank > names.COUNTERS["step"])):
        return shape, None
    shape, step = _taken(shape, found, shape.text)
    return shape, step and replace(step, kind="rest")


def _in_header(shape: LogShape, line: str, found: Line | None) -> Learned:
    """A line after a header that has the step: its values, until something else begins."""
    if BEST.search(shape.text):
        return _closed(shape), None
    if found is not None and found.is_bar and not found.counts and is_below_an_epoch(shape):
        return _of_an_epoch(shape, line)
    has_only_a_loss = found is not None and found.loss is not None and not (found.counts or found.is_bar)
    is_more = has_only_a_loss or CONTINUED.match(line) is not None or PAIR.match(line) is not None
    is_wrapped = line.rstrip().endswith("/")  # DreamerV3: name value / name value /
    is_new = found is not None and not is_wrapped and (not is_more or _begins_a_step(shape, found))
    if (is_new and not _is_aside(shape, found)) or shape.block_lines >= LONGEST_BLOCK:
        return _alone(_closed(shape), line, found)
    shape = replace(shape, block_lines=shape.block_lines + 1)
    if found is None:
        heading = set(words(line.strip()))
        is_evaluation = not names.NOT_TRAINING.isdisjoint(heading)
        if is_evaluation or not {"train", "training"}.isdisjoint(heading):
            shape = replace(shape, is_evaluation=is_evaluation)
        return shape, None
    label = LABEL.match(line.strip())
    again = shape.text.find(f" | {label[0]}") if label is not None else -1  # its values begin again
    text = f"{shape.text[:again] if again >= 0 else shape.text} | {line.strip()}"
    if (
        shape.is_evaluation
        or (found.loss is None and not found.metrics and not found.has_quality)
        or len(text) > LONGEST_TEXT
    ):
        return shape, None
    shape, step = _taken(replace(shape, text=text), read(text), text)
    return shape, step and replace(step, kind="rest")


def is_below_an_epoch(shape: LogShape) -> bool:
    """Whether the next line stands right below the header of an epoch: a bar without a name there is of its batches."""
    return shape.block == "header" and shape.block_lines == 0 and shape.epoch is not None


def _of_an_epoch(shape: LogShape, line: str) -> Learned:
    text = f"{shape.text} {line.strip()}"
    return _taken(_closed(shape), read(text), text)


def _begins_a_step(shape: LogShape, found: Line) -> bool:
    """Whether a line counts with its own loss, or counts on from the header: Coqui indents its headers, too."""
    if found.loss is not None or (found.epoch is None and not found.counts):
        return found.counts
    header = read(shape.text)
    if header is None or not found.counts:
        return header is not None and header.epoch not in (None, found.epoch)
    return header.counter == found.counter and header.step != found.step


def _is_aside(shape: LogShape, found: Line | None) -> bool:
    """Whether a line under a header of several numbers says nothing, and its loss may follow: `The mean reward is 2.8`.

    A header of one number may be prose: `Step 3: apply the patches`.
    """
    says_nothing = found is not None and found._replace(has_quality=False) == Line()
    if not says_nothing or shape.block_lines > 0 or len(numbers(shape.text)) < 2:
        return False
    header = read(shape.text)
    return header is not None and header.counts and header.loss is None


def _alone(shape: LogShape, line: str, found: Line | None) -> Learned:
    if found is None:
        return _closed(shape), None
    if found.loss is None and not found.is_bar:
        epoch = (
            (found.epoch + (IS_OVER.search(line) is not None), found.epochs)
            if found.epoch is not None and not ASIDE.search(line)
            else None
        )
        is_round = found.counter in ("iter", "iteration") and OUTER.match(line) is not None
        if is_round:
            epoch = (found.step or 0, found.target)
        if epoch is not None or _without_a_loss(found, line).counts:
            text = line.strip()[-LONGEST_EXAMPLE:]
            lines = int(is_round)  # a bar without a loss below a round may be of anything
            shape = replace(shape, block="header", text=text, block_lines=lines, is_evaluation=False)
        shape, step = _taken(shape, found, line)
        return replace(shape, epoch=epoch or shape.epoch), step or _announced(shape, line)
    has_rate = "learning_rate" in dict(found.metrics)  # fastText counts no steps
    if not (found.counts or shape.counter) and (has_rate or (found.is_named and not (found.is_bar or found.is_part))):
        return shape, StepLine(kind="train" if has_rate else "rest", loss=found.loss, is_part=found.is_part)
    is_below = found.loss is not None and not found.counts and shape.counter != ""
    if is_below and (found.is_named or "%|" in shape.example):  # steps that show no loss
        return shape, StepLine(step=shape.step, loss=found.loss, is_part=found.is_part)
    return _taken(shape, found, line)


def _announced(shape: LogShape, line: str) -> StepLine | None:
    """An epoch that begins or ends: all that some logs say of how far they are."""
    found = ANNOUNCED.match(line)
    if found is None or shape.counter:
        return None
    epoch = int(found["epoch"])
    is_grown = shape.epoch is not None and shape.epoch[0] < epoch + (IS_OVER.search(line) is not None)
    return StepLine(kind="epoch", epoch=epoch) if found["epochs"] or found["rule"] or is_grown else None


def _without_a_loss(found: Line, text: str) -> Line:
    """What counts without a loss is a step where a second one follows: an epoch or a step beside an accuracy, a reward,
    a learning rate or a speed, or an epoch with its time or a global step."""
    has_rate = "learning_rate" in dict(found.metrics) and (found.is_named or AT_A_RATE.search(text))
    has_speed = found.epochs is not None and not SPEEDS.isdisjoint(dict(found.metrics))  # rl_games
    is_a_step = (
        has_rate
        or has_speed
        or found.has_quality
        or (found.batches is not None and not OF_TESTING.search(text))
        or EPOCH_TOOK.match(text)
        or AT_A_GLOBAL_STEP.match(text)
        or found.counter == "total timesteps"
        or AT_A_SPEED.match(text)
    )
    if found.loss is not None or found.is_bar or found.is_timed or not is_a_step:
        return found
    if not found.counts or SHARE_OF_AN_EPOCH.match(text):
        step = found._replace(step=found.epoch, target=found.epochs, counter="epoch", batch=None, batches=None)
    else:
        step = found
    return step._replace(
        is_timed=True,
        is_named=(has_speed and not found.counts) or (found.is_named and BELIEVED.match(text) is not None),
    )


def _taken(shape: LogShape, found: Line | None, text: str) -> Learned:
    """Take in what was read, if it is a step by the counter of this log, or by one that is believed from now on."""
    found = found and _without_a_loss(found, text)
    if found is not None and found.is_bar and not found.counts and found.target and shape.counter.endswith("step"):
        return shape, StepLine(step=shape.step, target_step=found.target)  # its own step is rounded
    if found is None or not found.counts or (found.loss is None and not found.is_bar and not found.is_timed):
        return shape, None
    has_a_step = found.loss is not None and not found.is_bar and found.counter != "epoch"
    gives_way = shape.counter == "epoch" or (shape.counter == "bar" and has_a_step)
    is_other = found.counter != shape.counter and not (gives_way and found.is_named)
    is_of_this_epoch = shape.counter == "bar" or (shape.position is not None and found.step == shape.position[0])
    is_after = _is_after_the_training(shape, found)
    if is_other and found.counter == "epoch" and shape.counter not in FOR_ALL and not is_after:
        shape = _summarized(shape, found)
    if is_other and found.counter == "epoch" and is_of_this_epoch:
        return shape, StepLine(step=shape.step, loss=found.loss, epoch=float(found.step or 0))  # a summary of the epoch
    epoch_now, _, batches = shape.position or (None, 0, None)  # fewer of it: a validation that no word tells
    announced = shape.epoch[0] if found.epoch is None and shape.epoch is not None else found.epoch
    is_fewer = 0 < (found.batches or found.target or 0) < (batches or 0)
    is_other |= is_fewer and epoch_now is not None and announced == epoch_now
    is_of_the_last = found.is_bar or (shape.last is not None and announced == shape.last[0])
    is_other |= is_of_the_last and 0 < (found.target or 0) < (shape.step or 0) and shape.position is None
    if shape.counter and (is_other or is_after) and shape.others < min(OTHERS, shape.steps):
        return replace(shape, others=shape.others + 1), None
    shape, step, target = _over_the_epochs(shape, found)
    begun, epochs = shape.epoch or (None, None)  # `epoch: 30` and `lr: 0.1` may be settings
    is_told = begun == found.epoch and (found.loss is not None or found.has_quality or epochs is not None)
    is_announced = begun is not None and (is_told or found.counter == "listed")
    if found.counter != shape.counter and not found.is_named and not is_announced:
        before = dict(shape.candidates).get(found.counter)
        if before is None or step < before or (step == before and found.counter != "epoch"):
            others = tuple(pair for pair in shape.candidates if pair[0] != found.counter)
            return replace(shape, candidates=(*others, (found.counter, step))[-CANDIDATES:]), None
    example = re.sub(r"\s{2,}", "  ", text.strip())[:LONGEST_EXAMPLE]
    is_next_batch = found.counter == "epoch" and re.split(r"\d", example)[0] == re.split(r"\d", shape.example)[0]
    shape = replace(
        shape, counter=found.counter, example=example, steps=shape.steps + 1, step=step, others=0, candidates=()
    )
    metrics: dict[str, Any] = dict(found.metrics)
    epoch = found.epoch if shape.position is None else shape.position[0]
    return shape, StepLine(
        kind="rest" if is_next_batch or (found.is_bar and found.loss is not None) else "train",
        step=step,
        target_step=target,
        loss=found.loss,
        is_part=found.is_part and not is_next_batch,
        epoch=None if epoch is None else float(epoch),
        **metrics,
    )


def _is_after_the_training(shape: LogShape, found: Line) -> bool:
    """Whether it is a step before the last one, with no loss where the others have one: a program that tests what was
    trained may count as the training did."""
    at = (found.epoch or 0, found.batch or found.step or 0)
    last = (shape.position or shape.last or at)[:2] if found.epoch is not None else (0, shape.step or 0)
    return (
        at < last
        and found.loss is None
        and not found.is_bar
        and re.search(r"(?i:loss)\W{1,4}\d", shape.example) is not None
    )


def _summarized(shape: LogShape, found: Line) -> LogShape:
    """The shape after the summary of an epoch: if the steps begin again below it, they are those of the next one."""
    over = found.step or 0
    first = shape.first_epoch if over else 0
    return replace(shape, epoch=(over + 1, found.epochs), last=(over, shape.step or 0), first_epoch=first)


def _goes_on(shape: LogShape, found: Line) -> bool:
    """Whether the count of an epoch is that of all: `epoch 1/3 step 100/300`, then `epoch 2/3 step 110/300`."""
    if shape.position is None:
        return shape.counter == found.counter == "batch of epoch"
    epoch, batch, batches = shape.position
    if not found.epochs or not batches or found.epoch != epoch + 1 or found.batches != batches:
        return False
    each, over = batches / found.epochs, epoch + 1 - (shape.first_epoch or 0)
    return over - 0.5 < batch / each <= over < (found.batch or 0) / each <= over + 0.5


def _over_the_epochs(shape: LogShape, found: Line) -> tuple[LogShape, int, int | None]:
    """The step and the target over all epochs: where the log counts batches of an epoch, epoch × batches + batch."""
    epoch, batch, batches = found.epoch, found.batch, found.batches
    goes_on = _goes_on(shape, found)
    shape = shape if shape.position is None else replace(shape, position=None)
    if goes_on:
        return shape, batch or 0, batches
    # `Epoch 2/5`, then `step 100/938`; `epoch : 100` above `1/100` is a setting
    if epoch is None and found.target and shape.epoch is not None and shape.epoch != (found.target, None):
        epoch = shape.epoch[0]
        if found.counter in ("n/total", "batch", "batches"):  # Keras: `Epoch 2/5`, then `100/1875`
            batch, batches = found.step, found.target
    if epoch is None and found.counter.endswith("batch"):
        pair, before = (found.step or 0, found.target or 0), shape.last
        shape = replace(shape, last=pair)
        if shape.restarts or (before is not None and before[0] == pair[0] and 0 < before[1] < pair[1]):
            shape = replace(shape, restarts=True, position=(*pair, None))
            return shape, pair[1], None  # WeNet: `Batch 3/100` is batch 100 of epoch 3
    if epoch is None:
        return shape, found.step or 0, found.target
    from_one = epoch == 1 or found.is_from_one or found.epoch is None  # a header, as in Keras
    is_from_zero = epoch == 0 or found.is_to_the_highest
    first = 0 if is_from_zero else int(from_one) if shape.first_epoch is None else shape.first_epoch
    shape = replace(shape, first_epoch=first)
    if batch is None:
        step = found.step or 0
        last = shape.last[1] if shape.last is not None and epoch == shape.last[0] + 1 else -1
        if step <= last and (found.target or (step == last and found.counter.endswith("steps"))):
            shape = replace(shape, restarts=True)
        shape = replace(shape, last=(epoch, step))
        if step == last and found.counter == "batch" and not found.target:  # `batch: 64` is the size of each
            return shape, epoch, found.epochs
        if not shape.restarts:
            return shape, step, found.target or (shape.epochs if found.counter == "epoch" else None)
        batch, batches = step, found.target or step  # `steps: 625` are those of each epoch
    shape = replace(shape, position=(epoch, batch, batches))
    epochs = found.epochs or (shape.epoch[1] if shape.epoch is not None else None) or shape.epochs
    if epochs and not first and (found.is_to_the_highest or epochs % 10 == 9):  # 299: the last of 300
        epochs += 1
    target = epochs * batches if epochs and batches else None
    return shape, (epoch - first) * (batches or 0) + batch, target
