"""Xids, the driver's fault codes, from NVML events and from the kernel log. Each fault is reported once.

An nvidia-smi query does not show them. The kernel log has the text and the history, but many systems keep it from users
(dmesg_restrict). NVML events need no rights, but have no history.
"""

import ctypes
import os
import time

from collectors.probe.stdlib import Any, Callable, Line

RECENT = 600.0
"""At its start the probe reports the Xids of the last ten minutes: one of them may be why it restarts."""
SAME_FAULT = 10.0
"""The kernel log and NVML report one fault within this many seconds."""
MOST_RECORDS = 2000


class Deduplicator:
    """Drops the second of two reports of one fault: the kernel log's or NVML's, whichever comes later."""

    def __init__(self, monotonic: "Callable[[], float]" = time.monotonic) -> None:
        self.monotonic = monotonic
        self.reported = {}  # type: dict[tuple[int | None, int], tuple[float, int]]

    def is_new(self, index: "int | None", code: int, source: str) -> bool:
        now = self.monotonic()
        side = 1 if source == "nvml" else -1
        self.reported = {key: report for key, report in self.reported.items() if now - report[0] < SAME_FAULT}
        balance = self.reported.get((index, code), (now, 0))[1]
        self.reported[index, code] = (now, balance + side)
        return balance * side >= 0


class KernelLog:
    """/dev/kmsg, read without blocking, if this user may read it."""

    def __init__(self, path: str = "/dev/kmsg") -> None:
        self.last = -1
        try:
            self.file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # type: int | None
        except OSError:
            self.file = None

    def records(self) -> "list[tuple[float | None, str]]":
        """The new records: seconds since boot, and text."""
        found = []  # type: list[tuple[float | None, str]]
        for _ in range(MOST_RECORDS if self.file is not None else 0):
            try:
                data = os.read(self.file or 0, 8192)
            except BrokenPipeError:  # overwritten before we came; the next one is there
                continue
            except OSError:
                break
            if not data:
                break
            head, _, text = data.partition(b";")
            fields = head.split(b",")
            number = int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else self.last + 1
            if number <= self.last:
                continue  # the previous worker has reported it
            self.last = number
            since_boot = int(fields[2]) / 1e6 if len(fields) > 2 and fields[2].isdigit() else None
            found.append((since_boot, text.partition(b"\n")[0].decode("utf-8", "replace")))
        return found

    def faults(self, uptime: float) -> "list[Line]":
        """The Xids of the new records. The caller replaces `pci` by an index."""
        lines = []  # type: list[Line]
        for since_boot, text in self.records():
            if "NVRM" not in text and "SXid" not in text:
                continue
            from collectors.probe.gpu.driver_text import parsed

            known = parsed(text)
            if known is None or (since_boot is not None and uptime - since_boot > RECENT):
                continue
            line = {"k": "xid", "code": known[1], "text": known[2], "source": "kernel", "pci": known[0]}
            if since_boot is not None and uptime - since_boot > SAME_FAULT:
                line["t"] = round(time.time() - (uptime - since_boot), 3)
            lines.append(line)
        return lines


class NvmlEvents:
    """NVML's own Xid events of all GPUs, read without waiting."""

    def __init__(self, nvml: "Any", handles: "dict[int, Any]") -> None:
        self.nvml = nvml
        self.set = nvml.nvmlEventSetCreate()
        self.index = {}  # type: dict[int, int]
        for index, handle in handles.items():
            try:
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self.set)
            except nvml.NVMLError:
                continue  # this GPU has no events; the kernel log may have its Xids
            self.index[ctypes.cast(handle, ctypes.c_void_p).value or 0] = index

    def faults(self) -> "list[Line]":
        """The Xids since the last call."""
        found = []  # type: list[Line]
        while self.index and len(found) < 100:
            try:
                event = self.nvml.nvmlEventSetWait_v2(self.set, 0)
            except self.nvml.NVMLError:
                break  # a timeout: there is none. Or a lost GPU, which its own row reports
            index = self.index.get(ctypes.cast(event.device, ctypes.c_void_p).value or 0)
            if event.eventType == self.nvml.nvmlEventTypeXidCriticalError:
                found.append({"k": "xid", "code": int(event.eventData), "index": index, "source": "nvml"})
        return found
