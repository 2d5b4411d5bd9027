"""From capital keys to action requests: the rows that a verb applies to, and its texts. Pure."""

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
"""The text of the button that acts. The other button says Close, because Cancel is about jobs."""

OF_A_JOB_EACH = frozenset({"requeue", "cancel", "hold", "release"})
"""Verbs whose plan has one action a job."""


def button(verb: Verb, many: int) -> str:
    """The text of the button for a number of actions. `Cancel the job 3` would look like a job id."""
    if many <= 1:
        return BUTTONS[verb]
    if verb in OF_A_JOB_EACH:
        return f"{TITLES[verb]} {many} jobs"
    return f"{'Remove them' if verb in ('unkill', 'unsave') else BUTTONS[verb]} ({many} actions)"


OF_RUNS = frozenset({"save", "kill", "unkill", "unsave", "signal", "queue"})
"""Verbs that apply to runs. On a job, they apply to its run."""

READ_ONLY = "read-only: started with --read-only, or trainmon.toml has read_only = true"


def key_of(verb: Verb) -> str:
    """The key of a verb: K."""
    verb = {"release": "hold", "unsave": "unkill"}.get(verb, verb)  # type: ignore[assignment]
    return next((key.cap for key in KEYS if key.scope in ACTS and key.do == f"screen.act('{verb}')"), "")


def ask(verb: Verb, subjects: Sequence[Subject], state: State, now: Instant) -> ActionRequest | str:
    """The Ask for these rows, or in a sentence why the key means nothing here."""
    wanted = [subject for subject in subjects if (subject[0] == "node") == (verb == "exclude")]
    if not wanted:
        return f"{key_of(verb)} {WANTS_NODE if verb == 'exclude' else WANTS_RUN}"
    names = [key for _, key in wanted]
    if verb in OF_RUNS:  # of a job, its run; the plan refuses a job that belongs to none
        run_of = {key: run.name for run in state.runs.values() for key in run.jobs}
        names = [run_of.get(key, key) if kind == "job" else key for kind, key in wanted]
    if verb == "hold":
        verb = hold_or_release(state, tuple(names))
    return ActionRequest(verb=verb, subjects=tuple(dict.fromkeys(names)), asked_at=now)


WANTS_RUN = "acts on a run or a job: put the cursor on one, in 1 Runs or 7 Queue"
WANTS_NODE = "acts on a node: put the cursor on one, in 2 GPUs or 7 Queue"


def names(asked: ActionRequest, state: State) -> str:
    """Its subjects in words: `video-2b`, `job 88_3`, `3 marked rows`."""
    if len(asked.subjects) != 1:
        return f"{len(asked.subjects)} {'nodes' if asked.verb == 'exclude' else 'marked rows'}"
    subject = asked.subjects[0]
    job = state.jobs.get(subject)
    return f"job {job.id}" if job is not None and subject not in state.runs else subject


def hosts(asked: ActionRequest, state: State) -> str:
    """The hosts that its plan reads from: `login1`."""
    found = dict.fromkeys(clean(read.host) for read in reads_for_plan(asked, state, Readback(at=asked.asked_at)))
    return ", ".join(found) or "its host"


def is_hung(asked: ActionRequest, state: State) -> bool:
    """Whether the trainer may never read a kill switch: it makes no steps, and its job still runs."""
    runs = [state.runs[name] for name in asked.subjects if name in state.runs] if asked.verb == "kill" else []
    silent = (run for run in runs if run.verdict in SILENT_VERDICTS)
    return any(state.jobs[key].stage == "running" for run in silent for key in run.jobs if key in state.jobs)


Kind = Literal["run", "job", "node"]


Subject = tuple[Kind, str]
"""What a key that acts is about: a run by its name, a job by its key, a node by its name."""
