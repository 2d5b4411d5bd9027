"""Xids, the driver's fault codes: from NVML events and from the kernel log, each fault said once.

A nvidia-smi query does not show them. The kernel log has the words and the history, but many systems keep it from
users (dmesg_restrict); NVML events need no rights, but begin now.
"""

import ctypes
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

RECENT = 600.0
"""At its start the probe says the Xids of the last ten minutes: it may be back because of one."""
SAME = 10.0
"""The kernel log and NVML tell of one fault within moments of each other."""
MOST_RECORDS = 2000


class Once:
    """One fault, told by two: whichever comes second is dropped."""

    def __init__(self, monotonic: "Callable[[], float]" = time.monotonic) -> None:
        self.monotonic = monotonic
        self.told = {}  # type: dict[tuple[int | None, int], tuple[float, int]]

    def is_news(self, index: "int | None", code: int, source: str) -> bool:
        now = self.monotonic()
        side = 1 if source == "nvml" else -1
        self.told = {key: told for key, told in self.told.items() if now - told[0] < SAME}
        balance = self.told.get((index, code), (now, 0))[1]
        self.told[index, code] = (now, balance + side)
        return balance * side >= 0


class KernelLog:
    """/dev/kmsg, read without waiting, where this user may."""

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
                continue  # said by the worker before this one
            self.last = number
            since_boot = int(fields[2]) / 1e6 if len(fields) > 2 and fields[2].isdigit() else None
            found.append((since_boot, text.partition(b"\n")[0].decode("utf-8", "replace")))
        return found

    def faults(self, uptime: float) -> "list[dict[str, Any]]":
        """What the new records say about GPUs; `pci` is for the caller to turn into an index."""
        lines = []
        for since_boot, text in self.records():
            if "NVRM" not in text and "SXid" not in text:
                continue
            from collectors.probe.gpu.kernel_log import parsed

            known = parsed(text)
            if known is None or (since_boot is not None and uptime - since_boot > RECENT):
                continue
            line = {"k": "xid", "code": known[1], "text": known[2], "source": "kernel", "pci": known[0]}
            if since_boot is not None and uptime - since_boot > SAME:
                line["t"] = round(time.time() - (uptime - since_boot), 3)
            lines.append(line)
        return lines


class Events:
    """NVML's own Xid events of all GPUs, asked for without waiting."""

    def __init__(self, nvml: "Any", handles: "dict[int, Any]") -> None:
        self.nvml = nvml
        self.set = nvml.nvmlEventSetCreate()
        self.index = {}  # type: dict[int, int]
        for index, handle in handles.items():
            try:
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self.set)
            except nvml.NVMLError:
                continue  # this GPU tells no events: the kernel log may
            self.index[ctypes.cast(handle, ctypes.c_void_p).value or 0] = index

    def faults(self) -> "list[tuple[int | None, int]]":
        """GPU index and Xid of every event since the last call."""
        found = []  # type: list[tuple[int | None, int]]
        while self.index and len(found) < 100:
            try:
                event = self.nvml.nvmlEventSetWait_v2(self.set, 0)
            except self.nvml.NVMLError:
                break  # none, which is a timeout; or a lost GPU, which its own row says
            where = ctypes.cast(event.device, ctypes.c_void_p).value
            if event.eventType == self.nvml.nvmlEventTypeXidCriticalError:
                found.append((self.index.get(where or 0), int(event.eventData)))
        return found
