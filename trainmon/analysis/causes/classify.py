"""One cause for all that is known of the end of an attempt. Pure."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from trainmon.analysis.causes.choose import FULL, choose, is_evaluation
from trainmon.analysis.causes.lines import read_lines
from trainmon.analysis.causes.rules import RULE
from trainmon.analysis.causes.signs import OF_PART, RESULT_LINES, SURVIVED, Found, Signs, in_order, read_signs
from trainmon.analysis.gpus import BREAKING_XIDS
from trainmon.analysis.log_formats import report
from trainmon.lib import clean, counted, scrub
from trainmon.lib.log_prefix import EXCEPTION, LEVEL
from trainmon.model import CauseFacts, CauseName, Classification, Evidence, LogExcerpt, NodeFacts

# ---- one short text for the same failure, whatever its numbers, addresses, paths, hosts and times are ----------------

VARIES = re.compile(
    r"\b[\w.+-]*://\S+"  # addresses of the web
    r"|(?<!\w)(?:[A-Za-z]:)?[~.]?/[^\s'\",;:)\]]+"  # paths
    r"|\b0x[0-9a-fA-F]+\b|\b[0-9a-f]{8,}(?:-[0-9a-f]{4,}){0,4}\b"
    r"|\b(?:[\w-]+\.){1,8}[\w-]+\b"  # hosts, IP addresses, decimal numbers, names of layers
    r"|\b[\w-]*\d[\w-]*\b"  # numbers, and node names with one
)
LENGTH = 12


def fingerprint(cause: str, exception: str | None, text: str, hosts: Iterable[str] = ()) -> str:
    """A fingerprint of a failure. `text` is what the deciding line says."""
    for host in hosts:
        text = text.replace(host, "#")
    words = " ".join(VARIES.sub("#", text).casefold().split())[:200]
    return hashlib.sha256(f"{cause}|{exception or ''}|{words}".encode()).hexdigest()[:LENGTH]


# ---- what a log shows after the training has said that it ended ------------------------------------------------------

CLEAR = re.compile(
    r"\b(?:training|fine-?tuning|pre-?training) (?:is |was |has |has been )?(?:successfully )?"
    r"(?:completed?|finished|done|ended)\b(?! (?:with|unsuccess))|\b(?:finished|completed) training\b"
    r"|Trainer\.fit`? stopped: `?max_(?:epochs|steps|time)|['\"]train_runtime['\"]"
    r"|\b(?:saved (?:the )?final|final) (?:model|checkpoint|weights)\b.{0,40}\b(?:saved|written|to)\b"
    r"|\bsuccessfully (?:completed|finished|exited)\b|\bexiting program at iteration \d",
    re.IGNORECASE,
)
HAS_FAILED = re.compile(
    r"\bfatal\b|segmentation fault|core dumped|\bkilled\b|\baborted\b"
    r"|exit(?:ed)?(?: with)?(?: exit)? (?:code|status)\W{0,3}[1-9]"
    r"|(?:fail\w*|error|unable|could not|cannot)\b.{0,30}\b(?:sav(?:e|ing)|writ(?:e|ing))\b"
    r".{0,60}\b(?:model|checkpoint|ckpt|weights|state)",
    re.IGNORECASE,
)
"""A line that says that the program failed, or that it did not save its result."""
DIES = re.compile(
    r"^(?!.*\b(?:continu|restarting|resum|skipping|retrying|falling back))(?:terminate called\b|Fatal Python error"
    r"|.*(?:\bcore dumped\b|\bTerminating the process\b|\bexit(?:ed)?(?: with)?(?: exit)? code\W{0,3}[1-9]))",
    re.IGNORECASE,
)
"""A line with which a program ends, or that its launcher prints when it has. A trainer may outlive what it starts."""
LAUNCHER_ENDS = ("ChildFailedError", "CalledProcessError", "ProcessExitedException")
"""Exceptions with which torchrun, accelerate and torch.multiprocessing end, after one of their programs has."""
BESIDE = re.compile(r"Exception in thread|Error in atexit")
"""The title of a traceback that did not end the program."""


def is_noise(one: Found, signs: Signs, *, is_success: bool) -> bool:
    """Whether an error came after the training had ended, and does not say that the program failed. `is_success`: its
    exit status says that it did not."""
    if one.rule.role == "result" or one.strength == 3:
        return False
    start = one.index if one.raised is None else min(one.index, one.raised.start)
    ends = (end.index for end in reversed(signs.found) if end.rule.cause == "completed" and end.index < start)
    done = next((index for index in ends if says_it_ended(signs.lines[index].text)), None)
    if done is None or signs.steps_after(done):
        return False
    if is_success:
        return True
    if one.raised is not None:
        return _is_beside(one, signs)
    return one.rule.cause != "segfault" and HAS_FAILED.search(signs.lines[one.index].text) is None


def _is_beside(one: Found, signs: Signs) -> bool:
    """Whether the title of a traceback says that it is of a thread: the program goes on."""
    return one.raised is not None and any(
        BESIDE.search(line.text) for line in signs.lines[max(0, one.raised.start - 2) : one.raised.start]
    )


def says_it_ended(text: str) -> bool:
    """Whether a trainer says in this line that all of the training has ended as planned."""
    return CLEAR.search(text) is not None and OF_PART.search(text) is None


# ---- whether the loss of the training stays NaN or infinite ----------------------------------------------------------

NO_LOSS = re.compile(
    r"^(?!.*\bloss['\"]?: {0,3}\d).*\b(?:eval_loss|grad[_ ]norm)['\"]?: {0,3}(?:nan|inf)\b", re.IGNORECASE
)
"""What counts where no loss of the training is read: that of an evaluation, or the gradient."""


def diverged(signs: Signs, *, is_over: bool) -> Found | None:
    """The last of the losses that the dashboard shows, if the last two are NaN or infinite. A line without one counts
    if its gradient is so: Megatron-LM leaves out a loss that is NaN, and fp16 shows it as 0. One NaN is enough as the
    last loss of a training that is over: no step follows that could repair it."""
    last = signs.lines[-RESULT_LINES:]
    read = enumerate(report(line.head + line.text for line in last).lines)
    found = [(at, one.found) for at, one in read if one.found is not None]
    known = [(at, one.loss or one.grad_norm) for at, one in found]
    losses = [(at, loss) for at, loss in known if loss is not None]
    losses = losses or [(at, math.nan) for at, line in enumerate(last) if NO_LOSS.search(line.text)]
    are_lost = len(losses) >= 2 and not any(math.isfinite(loss) for _, loss in losses[-2:])
    own = [one.loss for _, one in found if one.loss is not None]
    if not are_lost and not (is_over and own and not math.isfinite(own[-1])):
        return None
    return Found(len(signs.lines) - len(last) + losses[-1][0], RULE["diverged"], "loss: nan", 2)


# ---- one cause for all that is known of the end of an attempt --------------------------------------------------------

STATES: dict[str, CauseName] = {
    "PREEMPTED": "preempted", "REQUEUED": "requeued", "NODE_FAIL": "node-fail", "BOOT_FAIL": "node-fail",
    "OUT_OF_MEMORY": "host-oom", "TIMEOUT": "time-limit", "DEADLINE": "time-limit", "CANCELLED": "cancelled-by-user",
}  # fmt: skip
"""Slurm's states that say why. A time limit and a cancellation may follow an error, and then the error is the cause."""
FAILED = ("FAILED", "LAUNCH_FAILED")
"""Slurm's states that only say that the end was not as planned. Right after it, Slurm may still report 0 with them."""
CRASHES = (4, 7, 8, 11)
"""Signals that the kernel sends to a program that crashes. A person or a program may send any other one."""
NO_RESTART = 93
"""The exit status by which ft_launcher of NVIDIA's nvidia-resiliency-ext asks for no requeue, whatever the cause."""
EXITS: dict[int, CauseName] = {0: "completed", NO_RESTART: "no-restart"}
"""No other exit status says why: a program may end with any."""
CUT = (6, 9, 11, 15)
"""Exit statuses that sacct prints instead of 134, 137, 139 and 143: it takes 128 off."""
SURE = {"exit status 0", "Slurm: COMPLETED"}
"""What decides alone."""
WANDB: dict[str, CauseName] = {"killed": "cancelled-by-user", "preempted": "preempted"}
WEAK = ("python-exception", "assertion", "dataloader-worker", "data-error", "nccl-timeout", "nccl-network", "hang")
"""What an OOM kill on a node explains."""
EPILOGUE_LINES = 40
"""What a launcher and loggers print after an error, at most: W&B prints about 25 lines."""
SHOWN = 300
"""Characters of a line of evidence."""
CONSEQUENCES = 2
HAS_LEVEL = re.compile(LEVEL)
"""A logger wrote the line: then its program has caught what the line names."""
KILLED = (
    "A person, or the OOM killer, sent SIGKILL. Look for oom-kill in the kernel log of the node, and for OUT_OF_MEMORY "
    "in Slurm's state of the job."
)
NOT_FINISHED = "See why it ended before its target step. If it is complete, correct target_step in its [[run]]."
SUMMARY_LINES = 10
"""torchrun's summary of one failed rank: time, host, rank, exit code, error file, traceback."""
SUMMARY_FIELD = re.compile(r"\s*(rank|error_file)\s*: (?!<N/A>)(\S+)")


class FirstFailure(NamedTuple):
    """What torchrun's summary says of the rank that failed first."""

    title: int
    """The index of its title in the log; the traceback of that rank may follow."""
    is_only: bool
    rank: str | None = None
    error_file: int | None = None
    """The index of the line that names it."""


class Fact(NamedTuple):
    """A cause that something other than the log states."""

    cause: CauseName
    text: str


def classify(facts: CauseFacts) -> Classification:
    """Why the attempt ended."""
    signs = read_signs(in_order(read_lines(facts.log)))
    found = choose(_counted(facts, signs))
    is_sure = found is not None and found.strength >= 2 and found.rule.role != "result"
    is_root = found is not None and is_sure and found.rule.role in ("root", "generic")
    ended_well = (end := _exit(facts)) is not None and end.cause == "completed" and not is_root
    is_said = found is not None and found.rule.cause == "completed" and found.strength == 2
    is_done = (ended_well or is_said) and _is_complete(facts, signs)
    for fact in _certain(facts, found if is_sure else None):
        if is_done if fact.cause == "kill-switch" else ended_well:
            continue
        shown = found if found is not None and found.rule.cause == fact.cause else None
        return _answer(facts, signs, fact.cause, True, shown, fact)
    if found is not None and is_root and found.rule.cause != "time-limit" and not _is_reported(facts, signs, found):
        return _answer(facts, signs, _phase(facts, signs, found), _ends(found, signs), found)
    ended = Fact("time-limit", "") if found is not None and found.rule.cause == "time-limit" else _state(facts)
    if ended is not None:
        is_sure = ended.text != "" or found is None or _ends(found, signs)
        return _answer(facts, signs, ended.cause, is_sure, found, ended)
    if found is not None and is_sure:
        return _answer(facts, signs, found.rule.cause, _ends(found, signs), found)
    if (nan := diverged(signs, is_over=ended_well)) is not None:
        return _answer(facts, signs, "diverged", True, nan)
    return _guess(facts, signs, found)


def _ends(found: Found, signs: Signs) -> bool:
    """Whether the run made no step after a message: one that follows an exception is of another rank."""
    return found.raised is not None or found.strength == 3 or not signs.advanced(found.index, len(signs.lines))


def _is_complete(facts: CauseFacts, signs: Signs) -> bool | None:
    """Whether the last step is at its target; null if the target is not known."""
    if facts.last_step is not None and facts.target_step is not None:
        return facts.last_step >= facts.target_step
    return signs.is_counted_out(len(signs.lines))


def _counted(facts: CauseFacts, signs: Signs) -> Signs:
    is_short = _is_complete(facts, signs) is False
    return replace(signs, found=[one for one in signs.found if _counts(facts, signs, one, is_short)])


def _counts(facts: CauseFacts, signs: Signs, one: Found, is_short: bool) -> bool:
    """Whether a sign is of the end of this attempt: not if what is reported of that differs from it, or it came after
    the training had ended well."""
    if one.rule.cause == "completed":
        return not _has_failed(facts) and (one.strength == 2 or not is_short)
    has_failed = _has_failed(facts) or facts.signal
    if not has_failed and is_noise(one, signs, is_success=(end := _exit(facts)) is not None and end.text in SURE):
        return False
    is_other = _slurm_state(facts) != "" and STATES.get(_slurm_state(facts)) != one.rule.cause
    return not (is_other and signs.ends_job(one) and signs.steps_after(one.index) >= SURVIVED)


def _is_reported(facts: CauseFacts, signs: Signs, found: Found) -> bool:
    """Whether Slurm has requeued the job, and the log only shows that its program was interrupted; or a person has
    cancelled it, and its last save then found a full disk."""
    state, stopped = _state(facts), (one for one in signs.found if one.rule.cause == "cancelled-by-user")
    if state is None or state.cause != "cancelled-by-user":
        return state is not None and state.cause == "requeued" and found.rule.cause == "cancelled-by-user"
    return found.rule.cause in FULL and any(one.index < found.index for one in stopped)


def fatal_end(lines: Sequence[str]) -> Classification | None:
    """The cause, if the log ends with an error that ended its program: an exception that nothing caught, or a stated
    reason. None if the program may go on."""
    facts = CauseFacts(log=(LogExcerpt(text="\n".join(lines), first_line=-len(lines)),))
    signs = _counted(facts, read_signs(read_lines(facts.log)))
    found = choose(signs)
    if found is None or found.rule.role == "result":
        return None
    ends = [one for one in signs.found if one.rule.role != "result" and (one.strength >= 2 or _ends_launcher(one))]
    fatal = [one for one in ends if _is_fatal(one, signs) and not _is_beside(one, signs)]
    is_over = fatal and not signs.goes_on(fatal[-1].index)
    return classify(facts) if is_over and len(lines) - ends[-1].index <= EPILOGUE_LINES else None


def _ends_launcher(one: Found) -> bool:
    """Whether a launcher ends with this exception because one of its programs has ended, by a signal for example."""
    return one.raised is not None and one.raised.is_uncaught and one.raised.type.rpartition(".")[2] in LAUNCHER_ENDS


def _is_fatal(one: Found, signs: Signs) -> bool:
    """Whether it ends a program: what is printed next may say so. Some print an exception without its traceback as
    their last line, and end."""
    if one.is_fatal_exception or _ends_launcher(one) or one.strength == 3 or signs.ends_job(one):
        return True
    if one.rule.cause == "segfault" or any(
        DIES.search(line.text) for line in signs.lines[one.index : one.index + EPILOGUE_LINES]
    ):
        return True
    line = signs.lines[one.index]
    is_plain = re.match(EXCEPTION, line.text) is not None and HAS_LEVEL.search(line.head) is None
    return is_plain and one.raised is None and one.index == len(signs.lines) - 1


def stated(cause: CauseName, fact: str) -> Classification:
    """A cause that something other than a log states."""
    return _answer(CauseFacts(), Signs((), [], [], []), cause, True, None, Fact(cause, fact))


def _guess(facts: CauseFacts, signs: Signs, found: Found | None) -> Classification:
    """The cause where neither an error nor the scheduler names one."""
    fact = _exit(facts)
    if found is not None and found.strength == 0 and found.rule.cause == "host-oom":
        is_seen = fact is not None or facts.scheduler_state is not None or bool(facts.nodes)  # and no OOM kill
        answer = _answer(facts, signs, "unknown" if is_seen else "host-oom", False, found, fact or _failure(facts))
        return replace(answer, advice=KILLED)
    if fact is None and facts.wandb_state in WANDB and (found is None or found.strength < 2):
        fact = Fact(WANDB[facts.wandb_state], f"W&B: {facts.wandb_state}")
    is_cause = fact is not None and fact.cause != "unknown"
    if fact is not None and is_cause and (found is None or fact.text in SURE or found.rule.role == "result"):
        return _answer(facts, signs, fact.cause, fact.text in SURE, None, fact)
    if found is not None and found.rule.cause != "unknown":
        return _answer(facts, signs, found.rule.cause, found.strength == 2 and not _is_doubtful(found, signs), found)
    is_at_end = bool(signs.progress) and OF_PART.search(signs.lines[-1].text) is None
    has_failed = _has_failed(facts) or facts.wandb_state == "crashed"
    if is_at_end and not has_failed and _is_complete(facts, signs):
        return _answer(facts, signs, "completed", False, Found(signs.progress[-1], RULE["completed"], "", 0))
    return _answer(facts, signs, "unknown", False, found, fact or _failure(facts))


def _failure(facts: CauseFacts) -> Fact | None:
    by = f"Slurm: {facts.scheduler_state}" if facts.scheduler_state else f"W&B: {facts.wandb_state}"
    return Fact("unknown", by) if _has_failed(facts) else None


def _is_doubtful(result: Found, signs: Signs) -> bool:
    """Whether an error, or a line that says that the program failed, came after this result."""
    errors = (one for one in signs.found if one.strength >= 2 and one.rule.role != "result")
    return any(one.index > result.index for one in errors) or any(
        HAS_FAILED.search(line.text) for line in signs.lines[result.index + 1 :][-RESULT_LINES:]
    )


def _certain(facts: CauseFacts, found: Found | None) -> Iterator[Fact]:
    """Facts that beat what the log says."""
    if facts.kill_switch:
        yield Fact("kill-switch", "a kill switch of the run was set")
    state = _state(facts)
    if state is not None and state.cause in ("preempted", "node-fail", "host-oom"):
        yield state
    for node in facts.nodes:
        yield from _node(node, found)


def _node(node: NodeFacts, found: Found | None) -> Iterator[Fact]:
    if xids := [xid for xid in node.xids if xid in BREAKING_XIDS]:
        yield Fact("gpu-hardware", f"{node.name}: Xid {', '.join(map(str, xids))}")
    if node.lost_gpus:
        yield Fact("gpu-hardware", f"{node.name}: {counted(node.lost_gpus, 'GPU')} lost")
    if node.rebooted:
        yield Fact("node-fail", f"{node.name}: rebooted")
    if node.oom_kills and (found is None or found.rule.cause in WEAK):
        yield Fact("host-oom", f"{node.name}: {node.oom_kills} OOM kills")
    if node.full_disks and found is not None and found.rule.cause in ("storage-io", "checkpoint-corrupt"):
        yield Fact("disk-full", f"{node.name}: {', '.join(node.full_disks)} is full")


def _nodes_of(facts: CauseFacts, cause: CauseName) -> Iterator[str]:
    """What names the node that failed. A node that Slurm only drained proves no other cause: jobs run on."""
    for node in facts.nodes if cause in ("node-fail", "gpu-hardware") else ():
        if node.drained is not None:
            yield f"{node.name}: {clean(node.drained)}"
        elif cause == "node-fail" and len(facts.nodes) == 1 and not node.rebooted:
            yield f"{node.name}: the only node of the attempt"


def _state(facts: CauseFacts) -> Fact | None:
    state = _slurm_state(facts)
    return Fact(STATES[state], f"Slurm: {facts.scheduler_state}") if state in STATES else None


def _slurm_state(facts: CauseFacts) -> str:
    return (facts.scheduler_state or "").split(" ")[0].rstrip("+").upper()


def _has_failed(facts: CauseFacts) -> bool:
    return _slurm_state(facts) in FAILED or bool(facts.exit_code) or _wandb_exit(facts) == "failed"


def _wandb_exit(facts: CauseFacts) -> str | None:
    """What W&B says of the exit of the script, which counts where nobody else knows it."""
    return facts.wandb_state if facts.exit_code is None and not facts.scheduler_state else None


def _exit(facts: CauseFacts) -> Fact | None:
    code = None if facts.exit_code == 0 and _has_failed(facts) else facts.exit_code
    if signal := facts.signal or -min(0, code or 0):
        return Fact("segfault" if signal in CRASHES else "unknown", f"signal {signal}")
    if code is None:
        if _slurm_state(facts) == "COMPLETED":
            return Fact("completed", f"Slurm: {facts.scheduler_state}")
        return Fact("completed", "W&B: finished") if _wandb_exit(facts) == "finished" else None
    also = f"; sacct prints {code} for {128 + code} too" if code in CUT and not facts.is_exact else ""
    return Fact(EXITS.get(code, "unknown"), f"exit status {code}{also}")


def _phase(facts: CauseFacts, signs: Signs, found: Found) -> CauseName:
    is_complete = None if None in (facts.last_step, facts.target_step) else _is_complete(facts, signs)
    is_after = is_evaluation(
        found, signs, is_committed=facts.checkpoint_committed or is_complete is True, is_complete=is_complete
    )
    return "evaluator" if is_after else found.rule.cause


def _first_failure(signs: Signs) -> FirstFailure | None:
    """torchrun's last summary."""
    lines = signs.lines
    last = range(len(lines) - 1, max(-1, len(lines) - RESULT_LINES), -1)
    title = next((index for index in last if lines[index].text.startswith("Root Cause (first observed failure)")), None)
    if title is None:
        return None
    is_only = any("<NO_OTHER_FAILURES>" in line.text for line in lines[max(0, title - SUMMARY_LINES) : title])
    below = ((at, SUMMARY_FIELD.match(lines[at].text)) for at in range(title, min(len(lines), title + SUMMARY_LINES)))
    fields = {field[1]: (at, field[2]) for at, field in below if field is not None}
    return FirstFailure(title, is_only, fields.get("rank", (0, None))[1], fields.get("error_file", (None, ""))[0])


def _evidence(signs: Signs, index: int, text: str, rank: str | None = None) -> Evidence:
    """A line; of a long one, the part that was found. `rank`: of a line without one."""
    line = signs.lines[index]
    start = max(0, line.text.find(text) - SHOWN // 4) if len(line.text) > SHOWN else 0
    shown = scrub(clean(line.text[start:], SHOWN))
    return Evidence(text=shown, line=line.number, rank=line.rank or rank, file=line.file or msgspec.UNSET)


def _answer(
    facts: CauseFacts, signs: Signs, cause: CauseName, is_sure: bool, found: Found | None, fact: Fact | None = None
) -> Classification:
    rule = RULE[cause]
    raised = found.raised if found is not None else None
    evidence = [Evidence(text=fact.text)] if fact is not None and fact.text else []
    evidence += [Evidence(text=text) for text in _nodes_of(facts, cause)]
    step, target, rank = facts.last_step, facts.target_step, None
    is_short = False
    if cause == "completed" and step is not None and target is not None and step < target:
        is_short = True
        evidence.append(Evidence(text=f"step {step:,} of {target:,}: not finished"))
    if found is not None:
        first = _first_failure(signs) if raised is not None else None
        if first is not None and (first.is_only or found.index > first.title):
            rank = first.rank
        place = [] if raised is None or raised.place is None else [(raised.place, "")]
        at = found.index if raised is None else raised.end
        later = [(one.index, one.text) for one in signs.found if one.strength >= 2 and one.index > at]
        shown = [_evidence(signs, *one, rank) for one in (*place, (at, found.text), (found.index, ""))]
        shown += [_evidence(signs, *one) for one in later[:CONSEQUENCES]]
        if first is not None and first.error_file is not None:
            shown.append(_evidence(signs, first.error_file, "", first.rank))
        known: dict[str, Evidence] = {}
        evidence += [known.setdefault(one.text, one) for one in shown if one.text not in known]
    is_refused = facts.exit_code == NO_RESTART
    if is_refused and cause != "no-restart":
        evidence.append(Evidence(text=f"exit status {NO_RESTART}: its launcher asks for no requeue"))
    hosts = (node.name for node in facts.nodes)
    return Classification(
        cause=cause,
        family=rule.family,
        retry="never" if is_refused else rule.retry,
        confidence="high" if is_sure and not is_short else "low",
        fingerprint=fingerprint(cause, raised.type if raised else None, found.text if found else "", hosts),
        evidence=tuple(evidence),
        advice=NOT_FINISHED if is_short else rule.advice,
        exception=(raised.type or None) if raised else None,
        rank=(signs.lines[found.index].rank or rank) if found else None,
    )
