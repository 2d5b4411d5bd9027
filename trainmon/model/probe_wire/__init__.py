"""The wire format between a probe and this program, version 1: NDJSON, one tagged object per line.

The probe (collectors/probe/worker.py) prints them, `DECODER` reads them. Times are the node's own clock. A field that
a driver or kernel refuses is null, never 0. Samples that come every period are arrays, to keep a line in one packet.
"""

from __future__ import annotations

import msgspec

from trainmon.model.probe_wire.files import (
    CheckpointEntry,
    CheckpointListing,
    FileContent,
    FileGroup,
    LogChunk,
    OtherLog,
    ReceiptFiles,
    Receipts,
    SwitchSample,
    SwitchSamples,
    WandbFileRun,
    WandbRows,
)
from trainmon.model.probe_wire.samples import (
    PROBES_WITHOUT_GPUS,
    THROTTLE,
    VERSION,
    Bye,
    DiskSample,
    DiskSamples,
    GpuFacts,
    GpuFactsAll,
    GpuSample,
    GpuSamples,
    Hello,
    HostSample,
    InfinibandPort,
    OwnProcess,
    Probe,
    Process,
    Reading,
    Trouble,
    Xid,
    throttle_names,
)
from trainmon.model.probe_wire.spec import ON_NODE, FileSpec, LogSpec, Spec, WandbDirectory

AnyReading = (
    Hello | GpuSamples | GpuFactsAll | Xid | HostSample | DiskSamples | LogChunk | SwitchSamples | CheckpointListing
    | FileContent | Receipts | WandbRows | Trouble | Bye
)  # fmt: skip

DECODER: msgspec.json.Decoder[AnyReading] = msgspec.json.Decoder(AnyReading)

__all__ = [
    "DECODER",
    "ON_NODE",
    "PROBES_WITHOUT_GPUS",
    "THROTTLE",
    "VERSION",
    "AnyReading",
    "Bye",
    "CheckpointEntry",
    "CheckpointListing",
    "DiskSample",
    "DiskSamples",
    "FileContent",
    "FileGroup",
    "FileSpec",
    "GpuFacts",
    "GpuFactsAll",
    "GpuSample",
    "GpuSamples",
    "Hello",
    "HostSample",
    "InfinibandPort",
    "LogChunk",
    "LogSpec",
    "OtherLog",
    "OwnProcess",
    "Probe",
    "Process",
    "Reading",
    "ReceiptFiles",
    "Receipts",
    "Spec",
    "SwitchSample",
    "SwitchSamples",
    "Trouble",
    "WandbDirectory",
    "WandbFileRun",
    "WandbRows",
    "Xid",
    "throttle_names",
]
