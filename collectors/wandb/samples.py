"""Where the media of W&B runs lie on this machine: one of each run kept ready, and what a person saves."""

from __future__ import annotations

import logging
import re
import zlib
from pathlib import Path

from collectors.wandb.child_process import WandbClient, WandbError
from collectors.wandb.run import TrackedRun
from collectors.wandb.wire import FetchedFile, FetchFile

log = logging.getLogger(__name__)

SAVED_AT_MOST = 50
"""Samples that a person gets at once: the newest of each metric."""

ONES_OWN = ("absent", "sdk")
"""Troubles of one file that say nothing of the next: it is not there, or too large."""

UNUSUAL = re.compile(r"[^\w.-]", re.ASCII)


def place_of(samples: Path, run: str) -> str:
    """A directory of its own for a run, whatever it is called."""
    return str(samples / f"{UNUSUAL.sub('-', run)[:80]}-{zlib.crc32(run.encode()):08x}")


def make_private(place: str) -> None:
    """Its directory, for nobody else to see; the child would make it for all."""
    try:
        for folder in (Path(place).parent, Path(place)):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        log.info("no place for a sample: %s", error)  # the child will say so, too


def remove_others(kept: Path) -> None:
    """One sample of a run is kept ready, not its history."""
    try:
        for other in kept.parent.iterdir():
            if other.name != kept.name and other.is_file():
                other.unlink()
    except OSError as error:
        log.info("an old sample stays: %s", error)


def save(client: WandbClient, run: TrackedRun, directory: str) -> str:
    """Fetch what the newest list of a run names. Returns what became of it, in a sentence."""
    current, samples = run.wandb.current, run.wandb.samples[:SAVED_AT_MOST]
    if current is None or not samples:
        return f"{run.name} has no samples"
    there = str(Path(directory).expanduser().absolute())
    saved, missed = 0, None
    for sample in samples:
        try:
            client.ask(FetchFile(id=0, path=current.path, file=sample.file, directory=there), FetchedFile)
            saved += 1
        except WandbError as failure:
            missed = missed or (sample.key, failure)
            if failure.kind not in ONES_OWN:
                break
    if missed is not None:
        key, why = missed
        if not saved:
            return f"no sample of {run.name} was saved: {why}"
        return f"{saved} of {len(samples)} samples of {run.name} are in {there}; not {key}: {why}"
    return f"{len(samples)} sample{'s' * (len(samples) != 1)} of {run.name} saved in {there}"
