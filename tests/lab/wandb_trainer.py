"""A training script without a model that tells W&B of itself as real ones do: `wandb.init(group=…)`, log, print, end.

Run as a script: python wandb_trainer.py --group g1 "log 100" sample "exit 1". After the deeds that are named it does
those that come on standard input, one a line, and ends well at its end. A deed is one of:

    log N [S]      N steps, one row each, S seconds apart; after every tenth a row with validation metrics of its own
    row K=V …      one row with these values; nan and inf are numbers
    sample         an image, as validation does
    video          an animation, as validation of a video model does
    say WORDS      a line on standard output; `cry WORDS` on standard error
    hang           no further step, ever; W&B's own process goes on with its heartbeats
    exit STATUS    end at once, as a script does that fell over, or did not
"""

from __future__ import annotations

import argparse
import base64
import io
import math
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import wandb

VALIDATE_EVERY = 10

GIF = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAkKAAEALAAAAAABAAEAAAICTAEAIfkECQoAAQAsAAAAAAEAAQAAAgJEAQA7")
"""Two frames of one pixel."""


class Training:
    """One attempt; its step is the trainer's own, W&B's `_step` runs ahead of it by the rows of validation."""

    def __init__(self, run: Any, folder: Path) -> None:
        self.run = run
        self.folder = folder
        self.step = int(run.summary.get("trainer/global_step", 0) or 0)
        self.deeds: Mapping[str, Callable[[str], None]] = {
            "log": self.log, "row": self.row, "sample": self.sample, "video": self.video, "say": print,
            "cry": lambda words: print(words, file=sys.stderr), "hang": self.hang, "exit": self.exit,
        }  # fmt: skip

    def do(self, line: str) -> None:
        name, _, words = line.strip().partition(" ")
        if name:
            self.deeds[name](words)

    def log(self, words: str) -> None:
        count, _, apart = words.partition(" ")
        for _ in range(int(count)):
            self.step += 1
            self.run.log({
                "train/loss": 2.0 + math.exp(-self.step / 500), "train/grad_norm": 0.3 + 0.1 * math.sin(self.step),
                "train/learning_rate": 1e-4, "train/tokens_per_s": 51_000.0, "trainer/global_step": self.step,
            })  # fmt: skip
            if self.step % VALIDATE_EVERY == 0:
                print(f"step {self.step} loss {2.0 + math.exp(-self.step / 500):.4f}", flush=True)
                self.run.log({"val/loss": 2.2 + math.exp(-self.step / 500), "val/accuracy": self.step / 1000})
            time.sleep(float(apart or 0))

    def row(self, words: str) -> None:
        pairs = (word.partition("=") for word in words.split())
        self.run.log({key: float(value) for key, _, value in pairs})

    def sample(self, _: str) -> None:
        from PIL import Image  # wandb.Image needs it too

        picture = Image.new("RGB", (64, 48), (self.step % 256, 128, 64))
        self.run.log({"val/sample": wandb.Image(picture, caption=f"a street at step {self.step}")})

    def video(self, _: str) -> None:
        self.run.log({"val/clip": wandb.Video(io.BytesIO(GIF), caption=f"step {self.step}", format="gif")})

    def hang(self, _: str) -> None:
        threading.Event().wait()

    def exit(self, status: str) -> None:
        if int(status):
            print("CUDA error: an illegal memory access was encountered", file=sys.stderr, flush=True)
        sys.exit(int(status))


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("project", "group", "id", "name", "entity"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--tag", action="append", default=[])
    parser.add_argument("deeds", nargs="*")
    options = parser.parse_args()
    run = wandb.init(
        project=options.project or "video", group=options.group, id=options.id, name=options.name,
        entity=options.entity, tags=options.tag,
        resume="allow" if options.id else None, config={"model": "2b", "batch": 256, "lr": 1e-4},
    )  # fmt: skip
    training = Training(run, Path.cwd())
    for deed in options.deeds:
        training.do(deed)
    for line in sys.stdin:
        training.do(line)


if __name__ == "__main__":
    main()
