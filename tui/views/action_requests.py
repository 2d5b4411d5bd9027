"""What the capital keys ask for: which rows a verb is about, the words for it, and the Ask that follows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from trainmon.actions.planning import SILENT_VERDICTS, Readback, hold_or_release, reads_for_plan
from trainmon.lib import Instant, clean
from trainmon.model import ActionRequest, State, Verb
from tui.keys import ACTS, KEYS

TITLES: dict[Verb, str] = {
    "save": "Save", "kill": "Kill", "unkill": "Remove a switch", "unsave": "Remove a switch", "requeue": "Requeue",
    "cancel": "Cancel", "hold": "Hold", "release": "Release", "signal": "Signal", "queue": "Queue another",
    "exclude": "Exclude",
}  # fmt: skip

BUTTONS: dict[Verb, str] = {**TITLES, "unkill": "Remove it", "unsave": "Remove it", "cancel": "Cancel the job",
                            "queue": "Queue"}  # fmt: skip
"""What the button says that acts. The other one says Close: Cancel is a word taken by jobs."""

OF_A_JOB_EACH = frozenset({"requeue", "cancel", "hold", "release"})
"""Verbs whose plan has one action a job."""


def button(verb: Verb, many: int) -> str:
    """What the button says that does so many actions; a bare number behind `Cancel the job` reads as a job's."""
    if many <= 1:
        return BUTTONS[verb]
    if verb in OF_A_JOB_EACH:
        return f"{TITLES[verb]} {many} jobs"
    return f"{'Remove them' if verb in ('unkill', 'unsave') else BUTTONS[verb]} ({many} actions)"


OF_RUNS = frozenset({"save", "kill", "unkill", "unsave", "signal", "queue"})
"""Verbs that mean the run; of a job's row, the run that the job belongs to."""

READ_ONLY = "read-only: started with --read-only, or trainmon.toml has read_only = true"


def key_of(verb: Verb) -> str:
    """The capital that asks for it: K."""
    verb = {"release": "hold", "unsave": "unkill"}.get(verb, verb)  # type: ignore[assignment]
    return next((key.cap for key in KEYS if key.scope in ACTS and key.do == f"screen.act('{verb}')"), "")


def ask(verb: Verb, subjects: Sequence[Subject], state: State, now: Instant) -> ActionRequest | str:
    """The Ask for these rows, or in a sentence why the key means nothing here."""
    wanted = [subject for subject in subjects if (subject[0] == "node") == (verb == "exclude")]
    if not wanted:
        return f"{key_of(verb)} {WANTS_NODE if verb == 'exclude' else WANTS_RUN}"
    names = [_run_of(subject, state) if verb in OF_RUNS else subject[1] for subject in wanted]
    if verb == "hold":
        verb = hold_or_release(state, tuple(names))
    return ActionRequest(verb=verb, subjects=tuple(dict.fromkeys(names)), asked_at=now)


WANTS_RUN = "acts on a run or a job: put the cursor on one, in 1 Runs or 7 Queue"
WANTS_NODE = "acts on a node: put the cursor on one, in 2 GPUs or 7 Queue"


def _run_of(subject: Subject, state: State) -> str:
    """The run that a job belongs to, where it belongs to one; the plan says in words when it does not."""
    kind, key = subject
    if kind != "job":
        return key
    return next((run.name for run in state.runs.values() if key in run.jobs), key)


def names(asked: ActionRequest, state: State) -> str:
    """What it is about, as a person calls it: `video-2b`, `job 88_3`, `3 marked rows`."""
    if len(asked.subjects) != 1:
        return f"{len(asked.subjects)} {'nodes' if asked.verb == 'exclude' else 'marked rows'}"
    subject = asked.subjects[0]
    job = state.jobs.get(subject)
    return f"job {job.id}" if job is not None and subject not in state.runs else subject


def hosts(asked: ActionRequest, state: State) -> str:
    """Where it will be looked at: `login1`."""
    found = dict.fromkeys(clean(read.host) for read in reads_for_plan(asked, state, Readback(at=asked.asked_at)))
    return ", ".join(found) or "its host"


def is_hung(asked: ActionRequest, state: State) -> bool:
    """Whether a kill switch may never be read: no step comes that would look for it, and a job is there to cancel."""
    return asked.verb == "kill" and any(_is_deaf(name, state) for name in asked.subjects)


def _is_deaf(name: str, state: State) -> bool:
    run = state.runs.get(name)
    if run is None or run.verdict not in SILENT_VERDICTS:
        return False
    return any(state.jobs[key].stage == "running" for key in run.jobs if key in state.jobs)


Kind = Literal["run", "job", "node"]


Subject = tuple[Kind, str]
"""What a key that acts is about: a run by its name, a job by its key, a node by its name."""
