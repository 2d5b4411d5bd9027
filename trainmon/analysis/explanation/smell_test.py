"""The 15-minute smell test: can a new engineer trace config, data, placement, checkpoint, retries and evals? Pure.

The six questions are those of Aaron Brooks, "Training infrastructure is failure accounting" (2026).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from trainmon.lib import counted
from trainmon.model import Attempt, EvalResult

Topic = Literal["config", "data", "placement", "checkpoint", "retry history", "eval state"]


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One of the six questions."""

    topic: Topic
    to_add: tuple[str, ...] = ()
    """What must be added, in sentences. Empty: the question can be answered."""

    @property
    def is_traceable(self) -> bool:
        return not self.to_add


def smell_test(attempt: Attempt, earlier: Sequence[Attempt], evals: Sequence[EvalResult]) -> tuple[Check, ...]:
    """The six checks, in their order."""
    return (
        Check(topic="config", to_add=tuple(_config(attempt))),
        Check(topic="data", to_add=() if attempt.data_manifest else (_unread(attempt, "data_manifest") or DATA,)),
        Check(topic="placement", to_add=tuple(_placement(attempt))),
        Check(topic="checkpoint", to_add=tuple(_checkpoint(attempt, earlier))),
        Check(topic="retry history", to_add=tuple(_retries(attempt, earlier))),
        Check(topic="eval state", to_add=tuple(_evals(attempt, evals))),
    )


DATA = "Set data_manifest in [[run]] or TRAINMON_DATA_MANIFEST in its environment, or log data_manifest to W&B."
EVALS = (
    "Write results to evals.jsonl beside the checkpoints, name their file in [[eval]], or log a setting such as "
    "mmlu_version to W&B: no evaluator is known."
)


def _unread(attempt: Attempt, field: Literal["config_path", "data_manifest"]) -> str | None:
    """What to add if the file that a field names cannot be read."""
    file = attempt.files.get(field)
    name = "config" if field == "config_path" else "manifest"
    if file is None or file.error is None:
        return None
    return f"Let trainmon-tui read the {name}: {file.path} cannot be read: {file.error}."


def _config(attempt: Attempt) -> Iterator[str]:
    if attempt.config_hash is None and (why := _unread(attempt, "config_path")) is not None:
        yield why
    elif attempt.config_hash is None and attempt.config_path is None:
        yield "Log the settings to W&B, or name the file: config in [[run]], or --config on the command line."
    if attempt.git_commit is None and attempt.container is None:
        yield "Start from a git checkout with W&B, or set TRAINMON_CONTAINER, or log container_digest to W&B."


def _placement(attempt: Attempt) -> Iterator[str]:
    if not attempt.nodes:
        yield "Name the nodes in [[run]], or start with Slurm: the nodes are not known."
    elif attempt.gpus is None and not attempt.gpu_uuids:
        yield "Watch its nodes: its GPUs are not known."


def _checkpoint(attempt: Attempt, earlier: Sequence[Attempt]) -> Iterator[str]:
    if not attempt.has_checkpoints:
        yield "Set checkpoints = DIR in [[run]]: no directory was listed."
    began = attempt.resumed_from if attempt.resumed_from is not None else attempt.first_step
    if began is None and (earlier or attempt.restart):
        yield "Let the trainer log the checkpoint that it loads: where it resumed is not known."


def _retries(attempt: Attempt, earlier: Sequence[Attempt]) -> Iterator[str]:
    ended = [one for one in (*earlier, attempt) if one.end is not None]
    unknown = [one for one in ended if one.end and (one.end.cause is None or one.end.cause.cause == "unknown")]
    if unknown:
        one = (
            "its cause is"
            if unknown == [attempt]
            else "the cause of another attempt is"
            if len(unknown) == 1
            else f"the causes of {len(unknown)} attempts are"
        )
        yield f"Set log in [[run]], or keep the logs: {one} not known."
    elif attempt.restart and len(earlier) < attempt.restart:
        lacking = counted(attempt.restart - len(earlier), "earlier attempt")
        yield f"Keep trainmon-tui running: the ledger lacks {lacking}."


def _evals(attempt: Attempt, evals: Sequence[EvalResult]) -> Iterator[str]:
    if not evals and not attempt.evaluators:
        yield EVALS
    missing = dict.fromkeys(name for one in evals for name in one.missing)
    if missing:
        yield f"Let the evaluator write {', '.join(missing)} with its results."
    last = attempt.last_committed_step
    if evals and last is not None and all(one.step != last for one in evals):
        yield f"Evaluate the last committed checkpoint, step {last:,}: no result of it is known."
