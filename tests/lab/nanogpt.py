"""A trainer without a model that prints, saves and logs to W&B as nanoGPT's train.py does, with the real W&B client.

Run as a script: python nanogpt.py --every 200. Its output directory is `out`, below the working directory.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

OUT = "out"
EVALUATE_EVERY = 50


def main() -> None:
    import wandb  # a third of a second, which the tests that name this script do not need

    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--step-s", type=float, default=0.1)
    told = parser.parse_args()
    print("tokens per iteration will be: 491,520")
    Path(OUT).mkdir(exist_ok=True)
    print("number of parameters: 123.59M", flush=True)
    wandb.init(project="owt", name="gpt2-124M", config={"batch_size": 12, "n_layer": 12})
    for step in range(told.steps):
        loss = 2.5 + 8 * math.exp(-step / 200)
        if step % EVALUATE_EVERY == 0:
            print(f"step {step}: train loss {loss:.4f}, val loss {loss + 0.05:.4f}")
            wandb.log({"iter": step, "train/loss": loss, "val/loss": loss + 0.05, "lr": 6e-4, "mfu": 31.0})
            if step:
                print(f"saving checkpoint to {OUT}", flush=True)
                Path(OUT, "ckpt.pt").write_bytes(bytes(1 << 20))
        print(f"iter {step}: loss {loss:.4f}, time {told.step_s * 1000:.2f}ms, mfu 31.02%", flush=True)
        time.sleep(told.step_s)


if __name__ == "__main__":
    main()
