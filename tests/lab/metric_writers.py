"""Files of metrics that the real libraries write, and what they read in them. Runs in the Python that has them:
`metric_writers.py write FOLDER ROWS`, `metric_writers.py read FOLDER`."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path

LOSS, GRAD, VALIDATION = "train/loss", "train/grad_norm", "val/loss"


def values(step: int) -> dict[str, float]:
    """What is logged at a step."""
    found = {LOSS: 2 + math.sin(step), GRAD: 0.1 * step}
    if step % 100 == 99:
        found[VALIDATION] = 3 - step / 1e5
    return found | {7: {LOSS: math.nan}, 9: {GRAD: math.inf}, 11: {GRAD: 0.0}}.get(step, {})


def write(folder: Path, rows: int) -> None:
    from lightning.pytorch.loggers import CSVLogger
    from torch.utils.tensorboard import SummaryWriter
    from transformers.trainer_callback import TrainerState

    events, csv = SummaryWriter(str(folder / "tensorboard")), CSVLogger(str(folder), "csv")
    state = TrainerState(max_steps=rows, log_history=[])
    for step in range(rows):
        for name, value in values(step).items():
            events.add_scalar(name, value, step, walltime=1e9 + step, new_style=step % 2 == 1)
        csv.log_metrics(values(step), step)
        if step == rows // 2:  # a restart: the next file of the same directory
            events.close()
            events = SummaryWriter(str(folder / "tensorboard"), filename_suffix=".2")
        if step % 100 == 0:
            csv.save()
            state.log_history.append({"loss": values(step)[LOSS], "learning_rate": 1e-4, "epoch": 0.1, "step": step})
    events.close()
    csv.save()
    (folder / f"checkpoint-{rows}").mkdir()
    state.save_to_json(str(folder / f"checkpoint-{rows}" / "trainer_state.json"))


def tensorboard(folder: Path) -> Iterator[tuple[int, str, float]]:
    """Step, name and value of each scalar, as TensorBoard reads the directory."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.util import tensor_util

    for file in sorted(folder.glob("*tfevents*")):
        for event in EventFileLoader(str(file)).Load():
            for value in event.summary.value:
                yield event.step, value.tag, float(tensor_util.make_ndarray(value.tensor).item())


def main(what: str, folder: Path, *more: str) -> None:
    if what == "write":
        write(folder, int(more[0]))
    else:
        print(json.dumps(list(tensorboard(folder / "tensorboard"))))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
