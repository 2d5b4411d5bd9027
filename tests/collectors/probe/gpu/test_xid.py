"""Xids of the kernel log: the lines that drivers have really written, and each fault said once."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from collectors.probe.gpu.driver_text import address, parsed
from collectors.probe.gpu.xid import Deduplicator, KernelLog
from tests.collectors.probe.wire import ManualClock

LINES = [
    (
        "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        ("0000:05:00", 79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."),
    ),
    (
        "NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=nvidia-smi, Timeout after 6s of waiting for RPC response "
        "from GPU4 GSP! Expected function 103 (GSP_RM_ALLOC) (0x2081 0x4).",
        (
            "0000:9b:00",
            119,
            "pid=2024380, name=nvidia-smi, Timeout after 6s of waiting for RPC response from GPU4 GSP! Expected "
            "function 103 (GSP_RM_ALLOC) (0x2081 0x4).",
        ),
    ),
    (
        "NVRM: Xid (PCI:0000:0f:00): 94, pid=2503421, name=python3, Ch 00000008",
        ("0000:0f:00", 94, "pid=2503421, name=python3, Ch 00000008"),
    ),
    (
        "NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01",
        ("0009:01:00", 149, "NETIR_LINK_EVT  Fatal   XC0 i0 Link 01"),
    ),
    ("NVRM: Xid (0000:05:00): 31, x", ("0000:05:00", 31, "x")),
    ("NVRM: GPU 0000:29:00.0: GPU has fallen off the bus.", ("0000:29:00", 79, "GPU has fallen off the bus.")),
    (
        "nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 12028, Non-fatal, Link 61 egress non-posted PRIV error (First)",
        (None, 12028, "NVSwitch: Non-fatal, Link 61 egress non-posted PRIV error (First)"),
    ),
    ("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.126.09", None),
    ("usb 1-1: new device", None),
]


@pytest.mark.parametrize(("line", "means"), LINES)
def test_a_kernel_line_says_which_gpu_and_what(line: str, means: tuple[str | None, int, str] | None) -> None:
    assert parsed(line) == means


def test_an_address_has_one_spelling() -> None:
    assert address("00000000:9B:00.0") == address("0000:9b:00") == "0000:9b:00"
    assert address("00010000:05:00.0") == "0000:05:00"


@pytest.fixture
def kmsg(tmp_path: Path) -> Path:
    """Stands for /dev/kmsg: a read gives a record, or would block."""
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    return path


def test_new_records_are_read_without_waiting(kmsg: Path) -> None:
    log = KernelLog(str(kmsg))
    writer = os.open(kmsg, os.O_WRONLY)
    assert log.faults(100.0) == []
    os.write(
        writer, b"4,1234,99000000,-;NVRM: Xid (PCI:0000:05:00): 63, pid=1896, Row Remapper: New row\n SUBSYSTEM=pci\n"
    )
    assert log.faults(100.0) == [
        {"k": "xid", "code": 63, "text": "pid=1896, Row Remapper: New row", "source": "kernel", "pci": "0000:05:00"}
    ]
    os.write(writer, b"6,1236,99000000,-;a word\xff of the kernel\n")
    assert log.faults(100.0) == []
    os.close(writer)


def test_an_older_record_has_its_own_time_and_an_old_one_is_history(kmsg: Path) -> None:
    log = KernelLog(str(kmsg))
    writer = os.open(kmsg, os.O_WRONLY)
    os.write(writer, b"4,1,1000000000,-;NVRM: Xid (PCI:0000:05:00): 79, gone\n")
    (fault,) = log.faults(1300.0)
    assert abs(fault["t"] - (time.time() - 300)) < 5
    os.write(writer, b"4,2,1000000000,-;NVRM: Xid (PCI:0000:05:00): 79, gone\n")
    assert log.faults(2000.0) == []
    os.close(writer)


def test_a_new_worker_repeats_no_record(kmsg: Path) -> None:
    log = KernelLog(str(kmsg))
    log.last = 41
    writer = os.open(kmsg, os.O_WRONLY)
    os.write(writer, b"4,41,99000000,-;NVRM: Xid (PCI:0000:05:00): 63, x\n")
    assert log.faults(100.0) == []
    os.write(writer, b"4,42,99000000,-;NVRM: Xid (PCI:0000:05:00): 64, x\n")
    assert [fault["code"] for fault in log.faults(100.0)] == [64]
    os.close(writer)


def test_a_kernel_log_that_may_not_be_read_reports_nothing(tmp_path: Path) -> None:
    log = KernelLog(str(tmp_path / "none"))
    assert log.file is None
    assert log.faults(1.0) == []


def test_one_fault_reported_twice_is_reported_once() -> None:
    deduplicator = Deduplicator(ManualClock())
    assert deduplicator.is_new(3, 79, "kernel")
    assert not deduplicator.is_new(3, 79, "nvml")
    assert deduplicator.is_new(4, 79, "nvml")
    assert not deduplicator.is_new(4, 79, "kernel")


def test_three_faults_reported_twice_are_three() -> None:
    deduplicator = Deduplicator(ManualClock())
    assert [deduplicator.is_new(0, 31, "kernel") for _ in range(3)] == [True] * 3
    assert [deduplicator.is_new(0, 31, "nvml") for _ in range(4)] == [False] * 3 + [True]


def test_the_same_fault_later_is_another_one() -> None:
    watch = ManualClock()
    deduplicator = Deduplicator(watch)
    assert deduplicator.is_new(0, 31, "kernel")
    watch.at += 60
    assert deduplicator.is_new(0, 31, "nvml")
