"""Our numbers beside nvidia-smi's own, on a node with real GPUs: `python -m tests.bench.real_gpu [--seconds 30]`.

Runs the probe as on a node, asks nvidia-smi at the same moment, and prints every field of every GPU, and what the
probe cost there. Ends with status 1 when a field differs by more than it can in a second.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import click

from collectors.probe.gpu import driver_text as smi_text
from tests.bench.probe import PERIOD, WARM, Cost
from tests.bench.program import run_program
from tests.lab.probe import RunningProbe
from trainmon.model import GpuFacts, GpuFactsAll, GpuSample, GpuSamples, Hello, HostSample

FAST = (
    ("temperature.gpu", "temperature_c", 3.0),
    ("temperature.memory", "memory_temperature_c", 3.0),
    ("memory.used", "memory_used_mib", 64.0),
    ("utilization.gpu", "utilization_pct", 15.0),
    ("power.draw", "power_w", 60.0),
    ("clocks.current.sm", "sm_clock_mhz", 200.0),
)
"""nvidia-smi's field, ours, and how far apart they may be: the two are not read at the same instant."""

SLOW = (
    ("memory.total", "memory_total_mib", 1.0),
    ("enforced.power.limit", "power_limit_w", 0.1),
    ("temperature.gpu.tlimit", "temperature_margin_c", 3.0),
    ("ecc.errors.uncorrected.volatile.total", "ecc_uncorrected", 0.0),
    ("ecc.errors.corrected.volatile.total", "ecc_corrected", 0.0),
)
SAME = (
    ("uuid", "uuid"),
    ("name", "name"),
    ("mig.mode.current", "mig"),
    ("remapped_rows.pending", "remap_pending"),
    ("remapped_rows.failure", "remap_failed"),
)
YES = {"Enabled": True, "Yes": True, "Disabled": False, "No": False}


def queried() -> dict[int, smi_text.Row]:
    """nvidia-smi's rows, of the fields that this driver offers."""
    offered = smi_text.offered(_smi("--help-query-gpu"))
    fields = [field for field in smi_text.FIELDS if field in offered]
    return smi_text.rows(_smi(f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"), fields)


def _smi(*arguments: str) -> str:
    return subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True, timeout=60, check=True).stdout


def compared(row: smi_text.Row, sample: GpuSample, facts: GpuFacts) -> list[tuple[str, object, object, bool]]:
    """Field, nvidia-smi's value, ours, and whether they agree."""
    found: list[tuple[str, object, object, bool]] = []
    for pairs, thing in ((FAST, sample), (SLOW, facts)):
        for theirs, ours, apart in pairs:
            left, right = row.decimal(theirs), getattr(thing, ours)
            agrees = theirs not in row.cells or (left is None and right is None)
            if left is not None and right is not None:
                agrees = abs(left - right) <= apart
            found.append((ours, left, right, agrees))
    for theirs, ours in SAME:
        text = row.text(theirs)
        agrees = theirs not in row.cells or YES.get(text or "", text) == getattr(facts, ours)
        found.append((ours, text, getattr(facts, ours), agrees))
    left = row.mask()
    found.append(("throttle_mask", left, sample.throttle_mask, left == sample.throttle_mask))
    return found


@click.command()
@click.option("--seconds", default=30.0, show_default=True)
@click.option("--python", default=sys.executable, show_default=True)
def main(seconds: float, python: str) -> None:
    """Print the tables."""
    with RunningProbe(dict(os.environ), python=os.path.realpath(python), period=PERIOD, slow=30.0, lease=600) as probe:
        hello = probe.wait(Hello, timeout=60)
        click.echo(f"probe {hello.probe}, driver {hello.driver}, note {hello.note}")
        click.echo(str(probe.wait(HostSample, timeout=60)))
        pause = threading.Event()
        pause.wait(WARM)
        cost = Cost(probe.process.pid)
        before = cost.cpu()
        pause.wait(seconds)
        used = 100 * (cost.cpu() - before) / seconds
        memory, shared = cost.mib("Rss"), cost.mib("Pss")
        samples = {sample.index: sample for sample in probe.wait_anew(GpuSamples).g}
        rows = queried()
        facts = {fact.index: fact for fact in probe.wait(GpuFactsAll).g}
        wrong = 0
        for index, row in sorted(rows.items()):
            click.echo(f"\n{'GPU ' + str(index):24} {'nvidia-smi':>42} {'probe':>42}")
            for field, theirs, ours, agrees in compared(row, samples[index], facts[index]):
                click.echo(f"{field:24} {theirs!s:>42} {ours!s:>42} {'' if agrees else '  DIFFERS'}")
                wrong += not agrees
            click.echo(f"processes: {facts[index].processes}")
    click.echo(
        f"\n{len(rows)} GPUs every {PERIOD:g} s: {used:.3f}% of a core, RSS {memory:.1f} MiB, PSS {shared:.1f} MiB"
    )
    sys.exit(1 if wrong or set(rows) != set(samples) else 0)


if __name__ == "__main__":
    run_program(main)
