"""Media of W&B runs on this machine: one sample of each run in advance, and those that a person saves."""

from __future__ import annotations

import logging
import re
import zlib
from pathlib import Path

from collectors.wandb.child_process import WandbClient, WandbError
from collectors.wandb.run import TrackedRun
from collectors.wandb.wire import FetchedFile, FetchFile
from trainmon.lib import counted

log = logging.getLogger(__name__)

MAX_SAVED = 50
"""The maximum number of samples saved at once: the newest of each metric."""

FILE_ERRORS = ("absent", "sdk")
"""Errors of one file only: it is missing, or too large."""

UNUSUAL = re.compile(r"[^\w.-]", re.ASCII)


def sample_directory(samples: Path, run: str) -> str:
    """The directory for a run's sample, whatever the run is called."""
    return str(samples / f"{UNUSUAL.sub('-', run)[:80]}-{zlib.crc32(run.encode()):08x}")


def make_private_directory(directory: str) -> None:
    """Make the directory with mode 700; the child would make it readable for all."""
    try:
        for folder in (Path(directory).parent, Path(directory)):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        log.info("cannot make the directory of a sample: %s", error)  # the child will fail with the same error


def remove_older_samples(newest: Path) -> None:
    """Remove all other samples of the run."""
    try:
        for other in newest.parent.iterdir():
            if other.name != newest.name and other.is_file():
                other.unlink()
    except OSError as error:
        log.info("cannot remove an old sample: %s", error)


def save_samples(client: WandbClient, run: TrackedRun, directory: str) -> str:
    """Fetch the samples in the newest list of a run. Returns the result as a sentence."""
    current, samples = run.wandb.current, run.wandb.samples[:MAX_SAVED]
    if current is None or not samples:
        return f"{run.name} has no samples"
    target = str(Path(directory).expanduser().absolute())
    saved, failed = 0, ""
    for sample in samples:
        try:
            client.query(FetchFile(id=0, path=current.path, file=sample.file, directory=target), FetchedFile)
            saved += 1
        except WandbError as error:
            failed = failed or f"{sample.key}: {error}"
            if error.kind not in FILE_ERRORS:
                break
    if not saved:
        return f"no sample of {run.name} was saved: {failed}"
    if failed:
        return f"saved {saved} of {counted(len(samples), 'sample')} of {run.name} in {target}; failed: {failed}"
    return f"saved {counted(saved, 'sample')} of {run.name} in {target}"
