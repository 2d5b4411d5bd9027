"""What a refusal or a loss means on nodes that let people in for a job alone (pam_slurm_adopt): its job has ended."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from trainmon.lib import Clock, LoginRefused, Seconds, TrainmonError

DOUBT_LEAST, DOUBT_MOST = 3.0, 30.0
"""Where our job was, a loss is first taken for its end: until its queue was asked at least 3 s later (an earlier look
may still have seen the job), at most for 30 s."""

NEEDS_A_JOB = "it lets in only users with a running job there"
NONE_OF_OURS = f"{NEEDS_A_JOB}, and none of yours is"

PAM = re.compile(r"pam_slurm|no active job", re.IGNORECASE)
"""What pam_slurm_adopt and pam_slurm say, in a message before the connection ends or on standard error."""


class Problem(NamedTuple):
    """What a row says of its trouble; without an error it is none yet."""

    error: str | None
    hint: str | None


class Backoff:
    """Of one host: what its refusals and losses were, weighed with the word of its queue."""

    def __init__(self, clock: Clock) -> None:
        self.is_ours: Callable[[], bool | None] = lambda: None
        """Whether a job of ours is there, as its queue said last; None where none is asked. Must be quick."""
        self.ask_queue: Callable[[], None] = lambda: None
        """Have its queue looked at soon. Must be quick."""
        self.needs_job = False
        """Whether it has refused us for want of a job, since it was last up."""
        self._clock = clock
        self._refusal: LoginRefused | None = None
        self._since: Seconds | None = None
        """Since when it is in doubt whether the job there has ended."""
        self._has_doubted = False
        """Whether the present trouble was in doubt once already."""
        self._told = Problem(None, None)
        self._has_let_us_in = False
        self._refused_without_a_job = False

    def forget(self) -> None:
        """It is well, or not wanted: what was is over."""
        self.needs_job = self._has_doubted = self._refused_without_a_job = False
        self._refusal = self._since = None
        self._has_let_us_in = True

    def means_off(self, error: TrainmonError) -> str | None:
        """Why an error is no fault but a node without a job of ours, in words; None where it is one."""
        self._refusal = error if isinstance(error, LoginRefused) and not is_for_want_of_a_job(error) else None
        self.needs_job = self.needs_job or is_for_want_of_a_job(error)
        self._refused_without_a_job = self._refusal is not None and not self.is_ours()
        if self.needs_job and self.is_ours() is None:
            return NEEDS_A_JOB
        return self.lacks_job()

    def lacks_job(self) -> str | None:
        """The same, now that the queue has spoken after it. A plain refusal is its rule only where we have been let in
        before; else it is a key that is not taken, which must not look like a node that is at rest."""
        is_its_rule = self._refusal is not None and self._has_let_us_in
        if self.is_ours() is not False or not (self.needs_job or is_its_rule):
            return None
        self.needs_job, self._since = True, None
        if self._refusal is None:
            return NONE_OF_OURS
        return f"{self._refusal.message}; without a running job of yours there, this may be its rule"

    def may_be_let_in(self) -> bool:
        """Whether a job of ours is there now, and was not when it refused us: worth one more try."""
        if not self._refused_without_a_job or not self.is_ours():
            return False
        self._refused_without_a_job = False
        return True

    def told(self, name: str, error: TrainmonError) -> Problem:
        """What the row says of an error. In doubt it is none yet, and the queue is asked."""
        self._told = Problem(error.message, error.hint or None)
        if self.needs_job:
            words = f"{NEEDS_A_JOB}, and does not know that one of yours is"
            self._told = Problem(words, f"its job may only be beginning there; try: ssh {name}")
        if self._since is None and not self._has_doubted and self.is_ours():
            self._has_doubted = True
            self._since = self._clock.monotonic()
            self.ask_queue()
        if self._since is None:
            return self._told
        return Problem(None, f"{error.message}; the queue is asked whether your job there has ended")

    def is_overdue(self) -> bool:
        """Whether the queue does not answer in time."""
        return self._since is not None and self._clock.monotonic() - self._since > DOUBT_MOST

    def is_answered(self) -> bool:
        """Whether a word of the queue that comes now was asked for after the loss."""
        return self._since is not None and self._clock.monotonic() - self._since >= DOUBT_LEAST

    def settled(self) -> Problem | None:
        """End the doubt: what the row says of the trouble; None where there was no doubt."""
        if self._since is None:
            return None
        self._since = None
        return self._told


def is_for_want_of_a_job(error: TrainmonError) -> bool:
    """Whether a node says itself that it wants a job there."""
    return PAM.search(error.message) is not None
