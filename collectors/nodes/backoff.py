"""What refused logins and lost connections mean on nodes that require a running job (pam_slurm_adopt), and how long to
wait before a node is tried again."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from collectors.nodes.steps import NoSrun
from trainmon.lib import Clock, LoginRefused, Seconds, TrainmonError

MIN_DOUBT, MAX_DOUBT = 3.0, 30.0
"""After a loss of a node with our job, the job may have ended. The loss is in doubt until a poll of the queue at least
3 s later, at most for 30 s. An earlier poll may still show the job."""

NEEDS_A_JOB = "it accepts only users with a running job there"
NONE_OF_OURS = f"{NEEDS_A_JOB}, and you have none"
NEEDS_A_STEP = "it is read by a step of your running job there"

PAM = re.compile(r"pam_slurm|no active job", re.IGNORECASE)
"""Matches messages of pam_slurm_adopt and pam_slurm, before the connection ends or on standard error."""


Problem = tuple[str | None, str | None]
"""The error and hint of a host's row; while in doubt there is no error."""


class Backoff:
    """One host's refusals and losses, combined with the state of its queue."""

    def __init__(self, clock: Clock) -> None:
        self.has_own_job: Callable[[], bool | None] = lambda: None
        """Whether our user has a job there, by the last poll of the queue; None without a queue. Must not block."""
        self.poll_queue: Callable[[], None] = lambda: None
        """Requests an early poll of the queue. Must not block."""
        self.requirement = NEEDS_A_JOB
        """Why it cannot be reached without a job."""
        self.needs_job = False
        """Whether it has refused us since it was last up, because we have no job there."""
        self._clock = clock
        self._refusal: LoginRefused | None = None
        self._since: Seconds | None = None
        """The time of a loss whose reason is in doubt: the job may have ended."""
        self._has_doubted = False
        """Whether the current problem was already in doubt once."""
        self._problem: Problem = (None, None)
        self._was_logged_in = False
        self._refused_without_a_job = False

    def forget(self) -> None:
        """Reset: the host is up, or not needed."""
        self.needs_job = self._has_doubted = self._refused_without_a_job = False
        self._refusal = self._since = None
        self._was_logged_in = True

    def off_reason(self, error: TrainmonError) -> str | None:
        """The reason why the node is off and not failed: we have no job there. None for a real error."""
        self._refusal = error if isinstance(error, LoginRefused) and not requires_job(error) else None
        self.needs_job = self.needs_job or requires_job(error)
        self._refused_without_a_job = self._refusal is not None and not self.has_own_job()
        return self.requirement if self.needs_job and self.has_own_job() is None else self.lacks_job()

    def lacks_job(self) -> str | None:
        """The same after a poll of the queue. A plain refusal counts only after an earlier login: otherwise the key is
        wrong, and the node must not look idle."""
        may_require_job = self.needs_job or (self._refusal is not None and self._was_logged_in)
        if self.has_own_job() is not False or not may_require_job:
            return None
        self.needs_job, self._since = True, None
        if self._refusal is None:
            return NONE_OF_OURS.replace(NEEDS_A_JOB, self.requirement)
        return f"{self._refusal.message}; perhaps it requires a running job there"

    def may_log_in_again(self) -> bool:
        """Whether our job has started since the refusal: then one more login is tried."""
        if not self._refused_without_a_job or not self.has_own_job():
            return False
        self._refused_without_a_job = False
        return True

    def problem(self, name: str, error: TrainmonError) -> Problem:
        """The row's problem for an error. While in doubt there is no error yet, and the queue is polled."""
        self._problem = (error.message, error.hint or None)
        if self.needs_job:
            self._problem = (
                f"{NEEDS_A_JOB}, and does not see yours yet",
                f"your job may still be starting; try: ssh {name}",
            )
        may_explain = not self._has_doubted and not isinstance(error, NoSrun)
        if self._since is None and may_explain and self.has_own_job():
            self._has_doubted = True
            self._since = self._clock.monotonic()
            self.poll_queue()
        if self._since is None:
            return self._problem
        return None, f"{error.message}; checking the queue: your job there may have ended"

    def doubt_time(self) -> Seconds:
        """The time since the loss that is in doubt; 0 without doubt."""
        return 0.0 if self._since is None else self._clock.monotonic() - self._since

    def end_doubt(self) -> Problem | None:
        """End the doubt. Returns the row's problem; None if there was no doubt."""
        was_in_doubt, self._since = self._since is not None, None
        return self._problem if was_in_doubt else None


def requires_job(error: TrainmonError) -> bool:
    """Whether the node's own message says that it requires a job."""
    return PAM.search(error.message) is not None


def pause_before(tries: int) -> Seconds:
    """The pause before the next dial: 1 s doubling to 60 s, with jitter so that 64 hosts do not redial at once."""
    return min(60.0, 2.0 ** min(tries, 6)) * random.uniform(0.5, 1.0) + 0.5
