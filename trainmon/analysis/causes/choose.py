"""Which of the signs is the cause: the first error beats its consequences. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainmon.analysis.causes.lines import MODULE
from trainmon.analysis.causes.signs import SURVIVED, Found, Signs

STATED = ("kill-switch", "preempted", "no-restart", "node-fail", "gpu-hardware", "host-oom")
"""Stated reasons. The first two explain all others; of the rest, the earliest counts. A time limit is weaker: an error
may have kept the job waiting for it. A requeue is weaker than the error after which a script requeues its job."""
SIGTERM = re.compile(r"SIGTERM|signal:? ?15|15 death signal|Terminated|Termination signal", re.IGNORECASE)
TOLD = re.compile(r"got|received|caught|handling", re.IGNORECASE)
"""The program itself says that it was told to stop."""
ENDED_BY = ("host-oom", "segfault")
NOISE = ("checkpoint-corrupt", "dataloader-worker", "storage-io", "rendezvous", "data-error")
"""What the end of a process by hand may look like on its other ranks."""
NOT_AFTER_CTRL_C = (*NOISE, "cancelled-by-user", "network-or-auth")
CRASHES = ("segfault", "device-assert", "cuda-illegal-access", "cancelled-by-user")
"""What a rank dies of without an exception, while others make their last steps. Another message ended nothing if the
run made steps after it, before another error."""
FULL = ("disk-full", "inodes-full")
"""What a program that was told to stop may find when it saves, and what is no consequence of the signal."""
NOT_NEXT = ("missing-file", "import-error")
"""What a script's next command may fail with because the one before it failed."""
LOGGED = (
    "import-error", "config-error", "missing-file", "permission", "data-error", "network-or-auth",
    "checkpoint-mismatch", "driver-mismatch",
)  # fmt: skip
"""What a script or a logger may report and go on. As an exception, or with nothing after it, it counts."""
FATAL = re.compile(r"\bfatal\b", re.IGNORECASE)
NEXT_ATTEMPT = 3
"""So many lines between a traceback and the next one show that the ranks did not fail together."""
SAVED = re.compile(
    r"\bsav(?:ed|ing|e)\b.{0,80}\b(?:model|checkpoint|ckpt|weights|state|best)"
    r"|\b(?:model|checkpoint|ckpt|weights)\b.{0,80}\bsav(?:ed|ing)|checkpoint.{0,40}(?:written|committed|complete)",
    re.IGNORECASE,
)
EVALUATED = "on|the|one|all|final|best|models?|policy|agent|checkpoints?|epoch|loop|steps?|batch|iter|metrics|tasks?"
EVALUATION = re.compile(
    r"^_*(?:(?:run|do|maybe|simple|perform|actual)_)*"
    rf"(?:(?:evals?|evaluate|evaluation|evaluator)(?:_(?:{EVALUATED}|train|test|val|validation|data|dataset|split|set))*"
    rf"|(?:val|valid|validate|validation|test|tester|testing|benchmark)(?:_(?:{EVALUATED}))*"
    r"|export(?:_(?:model|onnx|checkpoint))?|(?:generate_)?reports?|reporting|(?:compute_)?(?:bleu|rouge))$",
    re.IGNORECASE,
)
"""A function of an evaluation, by all words of its name: not `evaluate_actions`, `eval_jaxpr` or `validate_args`."""
TRAINERS = re.compile(
    r"-packages/[^/]*(?:lightning|transformers|accelerate|fairseq|megatron|nemo|mm(?:engine|cv)|ultralytics|eval"
    r"|opencompass|benchmark)",
    re.IGNORECASE,
)
"""Libraries that train or evaluate models. An `evaluate` or a `validate` of another library is about values."""
MAYBE_EVALUATION = re.compile(
    r"(?:^|[_.])(?:evals?|test|tester|testing|predict|prediction|inference|infer|metrics?|report|reporting|export"
    r"|benchmark|bleu|rouge)(?:$|[_.])|^(?:eval|test)\w*\.py$|^(?!.*save).*evaluat",
    re.IGNORECASE,
)
"""A file or a function that the training may use, too."""
TRAINING_STEP = re.compile(
    r"^_?(?:(?:train|training)_(?:step|batch|iter\w*)|\w*rollouts?|forward\w*|backward|compute_loss|optimi[sz]er_step)$"
)
TRAINING = re.compile(rf"{TRAINING_STEP.pattern}|(?:^|_)(?:train|training|pretrain|fit)(?:$|_)")


def choose(signs: Signs) -> Found | None:
    """The sign of the cause; null if there is none."""
    live = [one for one in signs.found if not signs.is_survived(one)]
    strong = [one for one in live if one.strength >= 2]
    stated = [one for one in strong if one.strength == 3 and one.rule.cause in STATED]
    if stated:
        return min(stated, key=lambda one: (min(STATED.index(one.rule.cause), 2), one.index))
    results = [one for one in strong if one.rule.role == "result"]
    roots = [one for one in strong if _is_root(one) and not _ended_well(one, results, signs)]
    exact = (one for one in reversed(roots) if one.rule.role == "root" and one.rule.cause not in NOT_AFTER_CTRL_C)
    end = next((one.index for one in exact if _is_hard(one, signs)), -1)
    roots = [one for one in roots if one.raised or one.rule.cause in CRASHES or not signs.advanced(one.index, end)]
    hard = [one for one in roots if _is_hard(one, signs)]
    went_on = [one for one in live if one.rule.role == "result"]
    soft = [
        one for one in roots if not signs.steps_after(one.index) and not any(end.index > one.index for end in went_on)
    ]
    root = _first(hard or soft, live)
    if root is not None and root.rule.cause == "disk-full":  # without inodes, files cannot be created either: ENOSPC
        root = next((one for one in strong if one.rule.cause == "inodes-full"), root)
    limit = next((one for one in reversed(strong) if one.rule.cause == "time-limit"), None)
    if limit is not None and (root is None or root.rule.role == "generic"):
        return limit
    requeue = next((one for one in reversed(strong) if one.rule.cause == "requeued"), None)
    if requeue is not None and (root is None or root.index > requeue.index):
        return requeue
    return root or _later(live, results, signs)


def _is_root(one: Found) -> bool:
    is_error = one.rule.role == "root" or (one.rule.role == "generic" and one.is_fatal_exception)
    return is_error and one.rule.cause not in ("time-limit", "requeued") and not one.is_consequence


def _is_hard(one: Found, signs: Signs) -> bool:
    return (
        one.raised is not None or one.rule.cause not in LOGGED or FATAL.search(signs.lines[one.index].text) is not None
    )


def _ended_well(one: Found, results: Sequence[Found], signs: Signs) -> bool:
    """Whether the run went on after an error and ended as planned."""
    later = [result for result in results if result.index > one.index]
    if not later or one.rule.cause == "cancelled-by-user":
        return False
    return signs.steps_after(one.index) > signs.steps_after(later[-1].index) or not one.is_fatal_exception


def _first(roots: Sequence[Found], live: Sequence[Found]) -> Found | None:
    """The first error of all ranks, unless a person or a signal from outside had ended the run before."""
    person = next((one for one in roots if one.rule.cause == "cancelled-by-user"), None)
    root = _of_last_attempt(roots)
    if person is not None and root is not None and root.rule.cause in NOISE:
        return person
    if person is not None and person is root:
        # A traceback of another kind that begins after Ctrl-C is of the next attempt in the same file.
        later = (one for one in roots if one.index > person.index and one.is_fatal_exception)
        return next((one for one in later if one.rule.role == "root" and one.rule.cause not in NOT_AFTER_CTRL_C), root)
    term = next((one for one in live if _is_sigterm(one)), None)
    is_other = root is not None and root.rule.cause not in ("cancelled-by-user", *FULL)
    return term if term is not None and root is not None and is_other and term.index < root.index else root


def _is_sigterm(one: Found) -> bool:
    return one.strength == 0 and one.rule.cause == "cancelled-by-user" and SIGTERM.search(one.text) is not None


def _of_last_attempt(roots: Sequence[Found]) -> Found | None:
    """The first error. After a program has died, other output and another error are of the next attempt in the file."""
    first = last = next(iter(roots), None)
    for one in roots[1:]:
        if first is None or last is None or first.raised is None or one.raised is None:
            continue
        is_next = first.is_fatal_exception and one.is_fatal_exception and one.raised.start - last.index > NEXT_ATTEMPT
        is_next = is_next and one.raised.begins_program
        if is_next and first.raised.stream[1] is None and one.rule.cause not in (*NOT_NEXT, first.rule.cause):
            first = one
        last = one
    return first


def _later(live: Sequence[Found], results: Sequence[Found], signs: Signs) -> Found | None:
    """The cause where nothing shows a first error."""
    hints = [one for one in live if one.strength == 0 and one.rule.role != "result"]
    killed = next((one for one in hints if one.rule.cause == "host-oom"), None)
    cascade = next((one for one in live if one.rule.role == "cascade" and not _is_overcome(one, results)), None)
    if hints and _is_sigterm(hints[0]) and _stopped_by(hints[0], cascade, results):
        return hints[0]
    if cascade is not None:
        return killed if killed is not None and cascade.rule.cause == "nccl-network" else cascade
    caught = [one for one in live if one.rule.role == "generic" and one.strength == 2 and not one.is_consequence]
    if caught and not (results and results[-1].index > caught[-1].index):
        return caught[0]
    ended = (one for one in hints if one.rule.cause in ENDED_BY or _is_sigterm(one))
    if results and not any(one.index > results[-1].index for one in ended):
        return results[-1]
    ends = [one for one in live if one.rule.role == "result"]
    tried = [one for one in hints if one.rule.cause == "network-or-auth" and ends and ends[-1].index > one.index]
    exact = [one for one in hints if one.rule.role != "generic" and one not in tried] or hints
    quiet = [one for one in live if one.strength == 1 and not signs.advanced(one.index, len(signs.lines))]
    consequences = [one for one in live if one.is_consequence]
    return next(iter((*exact[:1], *quiet[:1], *consequences[:1], *ends[-1:])), None)


def _is_overcome(cascade: Found, results: Sequence[Found]) -> bool:
    """Whether a message about the network ended nothing: NCCL warns of much that it works around."""
    is_message = cascade.raised is None and (cascade.rule.cause == "nccl-network" or cascade.strength < 2)
    return cascade.strength == 0 or (is_message and bool(results) and results[-1].index > cascade.index)


def _stopped_by(term: Found, cascade: Found | None, results: Sequence[Found]) -> bool:
    """Whether a signal is why the ranks lost each other, or why the program says that it has finished."""
    if cascade is not None:
        return term.index < cascade.index
    return bool(results) and term.index < results[0].index and TOLD.match(term.text) is not None


def is_evaluation(one: Found, signs: Signs, *, is_committed: bool, is_complete: bool | None) -> bool:
    """Whether an evaluation failed after a checkpoint was saved or the training had ended. `is_complete`: whether the
    training was at its target; if that is not known, the counts of the log say it."""
    if one.raised is None:
        return False
    start = one.raised.start
    ends = [found.index for found in signs.found if found.rule.cause == "completed" and found.strength == 2]
    is_saved = (index for index in range(start - 1, -1, -1) if SAVED.search(signs.lines[index].text))
    last = max((*(index for index in ends if index < one.index), next(is_saved, -1)))
    if last < 0 and not is_committed:
        return False
    went_on = last >= 0 and sum("loss" in signs.lines[step].text.lower() for step in signs.steps_of(last, start))
    is_complete = signs.is_counted_out(start if last < 0 else last) if is_complete is None else is_complete
    return _is_in_evaluation(one.raised.frames, went_on >= SURVIVED or is_complete is False)


def _is_in_evaluation(frames: Sequence[tuple[str, str]], is_training: bool) -> bool:
    """Whether a traceback leads through an evaluation. The outermost function that tells decides; the name of a file
    and words such as predict tell it only where the training was over, or did not go on after the checkpoint."""
    own = [one for one in frames if MODULE.search(one[0]) is None or TRAINERS.search(one[0]) is not None]
    for _, name in own:
        if TRAINING_STEP.search(name):
            return False
        if EVALUATION.search(name):
            return True
    if is_training or any(TRAINING.search(name) for _, name in frames):
        return False
    parts = (part for path, name in own for part in ("" if MODULE.search(path) else path.rpartition("/")[2], name))
    return any(map(MAYBE_EVALUATION.search, parts))
