"""What a log shows after the training has said that it ended: uploads, telemetry and other programs. Pure."""

from __future__ import annotations

import re

from trainmon.analysis.causes.signs import OF_PART, Found, Signs

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
        return any(BESIDE.search(line.text) for line in signs.lines[max(0, start - 2) : start])
    return one.rule.cause != "segfault" and HAS_FAILED.search(signs.lines[one.index].text) is None


def says_it_ended(text: str) -> bool:
    """Whether a trainer says in this line that all of the training has ended as planned."""
    return CLEAR.search(text) is not None and OF_PART.search(text) is None
