"""What W&B says of the runs, as a plain table of `snapshot`."""

from __future__ import annotations

from collections.abc import Iterator

from trainmon import wandb_group
from trainmon.model import Run, State
from trainmon.model_wandb import Wandb
from tui.format import age, count

WANDB = ("RUN", "W&B RUN", "STATE", "HEARTBEAT", "STEP", "GROUP", "SAYS")


def sections(state: State) -> Iterator[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    """The table, where a run is watched in W&B."""
    watched = [run for run in state.runs.values() if run.spec.wandb is not None]
    if watched:
        yield WANDB, [_row(run, state) for run in watched]


def _row(run: Run, state: State) -> tuple[str, ...]:
    source = state.sources.get(f"wandb:{run.name}")
    known, says = run.wandb or Wandb(), []
    if source is not None and source.error is not None:
        says += [source.error, source.hint or ""]
    says += [known.why if run.wandb is not None else "W&B has not answered yet", known.loss_why]
    current = known.current
    return (
        run.name,
        "?" if current is None else current.name,
        "?" if current is None else current.state,
        "?" if current is None else age(wandb_group.unheard(known, current, state.at)),
        "?" if current is None else count(current.step),
        known.phase if run.wandb is not None else "?",
        "; ".join(text for text in says if text),
    )
