"""What following a `.wandb` file costs: `python -m tests.bench.wandb_file [ROWS]`.

The real client writes an offline run. The probe reads its file, once in one piece for the processor time, and once as
on a node for the memory. Beside it, wandb's own protobuf classes read the same records.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from wandb.proto.wandb_internal_pb2 import Record

from collectors.probe import bundle
from collectors.probe.files import metrics as wandb_reader
from collectors.probe.files.wandb_records import Records
from tests.bench.probe import Agent, Cost
from tests.bench.program import run_program
from tests.bench.table import ratio, show
from tests.collectors.probe.files.wandb_files import Reader
from tests.lab.wandb_training import OfflineTraining
from trainmon.analysis.wandb import client_file
from trainmon.model import Spec

ROWS = 20_000
CORE_SHARE, MEMORY_MIB = 0.15, 4.0
"""The goal: of a core while 1 MB/s is read, at nice 19, and more memory than a probe without such a file."""

WARM = 6.0


def ours(folder: Path) -> float:
    """Processor seconds of reading all of it."""
    wandb_reader.MAX_BUDGET = wandb_reader.PIECES_S = 1e12
    reader = Reader(folder)
    reader.probe._known["llm"]._budget = 1e12
    begun = time.process_time()
    [operation] = [operation for _, operation in reader.probe.operations(slow=False)]
    lines = operation() or []
    spent = time.process_time() - begun
    assert lines[-1]["offset"] == lines[-1]["size"]
    return spent


def theirs(file: Path) -> float:
    """The same with wandb's protobuf, which is C: the same framing, and the rows as numbers."""
    data = file.read_bytes()
    begun = time.process_time()
    for _, found in Records().read(data, is_end=True):
        record = Record.FromString(found)
        for items in (record.history.item, record.summary.update):
            for item in items:
                _ = ".".join(item.nested_key) or item.key, item.value_json
    return time.process_time() - begun


def memory(spec: Spec, size: int) -> tuple[float, int]:
    """MiB of a probe once it has read the file, and the bytes that it has sent."""
    agent = Agent("probe", bundle.command(sys.executable), dict(os.environ), spec, bundle.LEASE, 20.0)
    time.sleep(WARM + size / wandb_reader.RATE * (2.0 if spec.wandb else 1.0))
    found = Cost(agent.process.pid).mib("Pss"), agent.bytes
    agent.close()
    return found


def main() -> int:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with OfflineTraining(folder, f"log {rows * 10 // 11}") as training:
            training.wait()
        [file] = folder.glob("wandb/offline-run-*/*.wandb")
        size = file.stat().st_size
        wanted = client_file.directory_of("llm", str(folder / "wandb"), ())
        plain, with_file = (memory(Spec(wandb=spec), size) for spec in ((), (wanted,)))
        cpu, peer = min(ours(folder / "wandb") for _ in range(3)), min(theirs(file) for _ in range(3))
    share, more = cpu / size * wandb_reader.RATE, with_file[0] - plain[0]
    show(
        f"a real offline run of {rows:,} rows, {size / 1e6:.1f} MB",
        ("", "ours", "wandb's protobuf", "goal"),
        [
            ("processor time per MB", f"{1e9 * cpu / size:.0f} ms", f"{1e9 * peer / size:.0f} ms", ""),
            ("beside wandb's protobuf", ratio(cpu, peer), "", ""),
            ("of a core at 1 MB/s", f"{share:.1%}", "", f"{CORE_SHARE:.0%}"),
            ("more memory of the probe", f"{more:.1f} MiB", "", f"{MEMORY_MIB:.0f} MiB"),
            ("sent for all of it", f"{(with_file[1] - plain[1]) / 1e6:.2f} MB", "", ""),
        ],
    )
    return 0 if share <= CORE_SHARE and more <= MEMORY_MIB else 1


if __name__ == "__main__":
    run_program(main)
