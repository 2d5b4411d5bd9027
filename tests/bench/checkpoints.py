"""What listing and interpreting checkpoints costs: `python -m tests.bench.checkpoints [--shards 2000] [--probe 60]`.

20 checkpoints of 2,000 shards: a first look, one at which nothing has changed, one while the newest is being written;
the line, and reading it. With --probe also the whole probe with and without such a directory, over so many seconds.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click

from collectors.probe import bundle
from collectors.probe.files.checkpoints import Checkpoints
from tests.bench.probe import Agent, measure
from tests.bench.program import run_program
from tests.lab.nvml import Nvml
from trainmon.analysis.checkpoints import listing as checkpoints
from trainmon.model import DECODER, CheckpointListing, Spec

COUNT = 20
EVERY = 3600.0


def fill(folder: Path, shards: int, now: float) -> None:
    """The checkpoints, one an hour."""
    for number in range(COUNT):
        one = folder / f"step-{500 * (number + 1)}"
        one.mkdir()
        at = now - EVERY * (COUNT - number)
        for name in (*(f"__{rank}_0.distcp" for rank in range(shards)), ".metadata"):
            (one / name).touch()
            os.utime(one / name, (at, at))
        os.utime(one, (at, at))


def timed(work: Callable[[], object], times: int = 1) -> float:
    """CPU milliseconds of one call."""
    begun = time.process_time()
    for _ in range(times):
        work()
    return 1000 * (time.process_time() - begun) / times


def whole(directory: Checkpoints) -> list[str]:
    """The lines of a look, from its first slice to its last."""
    lines: list[str] = []
    for _, look in directory.operations(True):
        while not lines:
            lines += [json.dumps({"v": 1, "t": time.time(), **line}) for line in look()]
    return lines


def report(folder: Path, shards: int) -> None:
    spec = {"checkpoints": [str(folder)]}
    known = Checkpoints(spec)
    lines: list[str] = []
    click.echo(f"{COUNT} checkpoints of {shards} shards")
    click.echo(f"  first look             {timed(lambda: lines.extend(whole(known))):9.2f} ms")

    def again() -> None:
        known.configure(spec)
        whole(known)

    click.echo(f"  nothing has changed    {timed(again, 10):9.2f} ms   (every 30 s)")
    (folder / f"step-{500 * COUNT}" / ".metadata.tmp").touch()
    click.echo(f"  the newest is written  {timed(again, 10):9.2f} ms   (every 10 s)")
    click.echo(f"  the line               {len(lines[0]):9d} bytes")
    listing = DECODER.decode(lines[0])
    assert isinstance(listing, CheckpointListing)

    def read() -> None:
        checkpoints.read(listing, host="n", at=listing.t, is_running=True, now=listing.t, skew=0.0, before=None)

    click.echo(f"  reading it             {timed(lambda: DECODER.decode(lines[0]), 100):9.3f} ms")
    click.echo(f"  what it means          {timed(read, 100):9.3f} ms")


def compare(scratch: Path, folder: Path, seconds: float) -> None:
    """The probe with the directory beside one without."""
    environment = Nvml(scratch).environment()
    specs = {"probe": Spec(), "probe, checkpoints": Spec(checkpoints=(str(folder),))}
    command = bundle.command(os.path.realpath(sys.executable))
    agents = [Agent(name, command, environment, spec, bundle.LEASE, 20.0) for name, spec in specs.items()]
    rows = measure(agents, seconds)
    for agent in agents:
        agent.close()
    for name, cpu, rss, pss, _, rate in rows:
        click.echo(f"  {name:22} {cpu:9.3f}% of a core  {rss:6.1f} MiB RSS  {pss:5.1f} MiB PSS  {rate:6.0f} bytes/s")


@click.command()
@click.option("--shards", default=2000, show_default=True)
@click.option("--probe", "seconds", default=0.0, help="Seconds of the whole probe.")
def main(shards: int, seconds: float) -> None:
    """Print the costs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "ckpt"
        folder.mkdir()
        fill(folder, shards, time.time())
        report(folder, shards)
        if seconds:
            newest = folder / f"step-{500 * COUNT}"
            (newest / ".metadata.tmp").unlink()
            os.utime(newest, (time.time() - EVERY, time.time() - EVERY))
            compare(Path(name), folder, seconds)


if __name__ == "__main__":
    run_program(main)
