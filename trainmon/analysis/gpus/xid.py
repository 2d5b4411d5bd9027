"""What an Xid (a GPU driver's fault code) or an SXid (an NVSwitch's) means, and what is to be done. Pure.

Classes after NVIDIA's catalogue and what operators page for (Meta gcm, nvidia_gpu_exporter, Azure, leptonai gpud).
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Kind = Literal["hardware", "watch", "application", "ignored", "unknown"]
"""hardware: the GPU must be reset or leave. watch: hardware that coped with it, this time. application: a program's own
fault, or the trace of one. ignored: never a cause alone. unknown: in no list."""


class XidMeaning(NamedTuple):
    """Of one fault: its class, its name, and what to do."""

    kind: Kind
    name: str
    advice: str = ""


RESET = "drain the node, reset the GPU (nvidia-smi -r) or reboot; if it comes again, have the GPU replaced"
REBOOT = "drain the node and reboot it; if it comes again, have the GPU or its slot replaced"
NVLINK = "drain the node; nvidia-smi nvlink -e shows the link; reset or reboot, and have it replaced if it comes again"
RESTART = "the program's own fault, unless it stays on this GPU: then drain the node"
POWER = "have its power cable checked: drain the node"

HARDWARE: dict[int, tuple[str, str]] = {
    46: ("GPU stopped processing", RESET),
    48: ("double-bit ECC error", RESET),
    54: ("auxiliary power is not connected", POWER),
    62: ("micro-controller halted", RESET),
    64: ("row remapping failed", RESET),
    74: ("NVLink error", NVLINK),
    79: ("GPU has fallen off the bus", REBOOT),
    95: ("uncontained ECC error", RESET),
    110: ("security fault", RESET),
    119: ("GSP does not answer", RESET),
    120: ("GSP error", RESET),
    136: ("link training failed", RESET),
    140: ("unrecovered ECC error", RESET),
    143: ("GPU could not be initialised", RESET),
    144: ("NVLink SAW error", NVLINK),
    145: ("NVLink RLW error", NVLINK),
    146: ("NVLink TLW error", NVLINK),
    147: ("NVLink TREX error", NVLINK),
    148: ("NVLink NVLPW_CTRL error", NVLINK),
    149: ("NVLink NETIR error", NVLINK),
    150: ("NVLink MSE error", NVLINK),
    155: ("NVLink software-defined error", NVLINK),
    156: ("resource retirement", RESET),
    158: ("GPU fatal timeout", RESET),
    167: ("PCIe fatal timeout", REBOOT),
    169: ("SEC2 micro-controller halted", RESET),
    171: ("uncorrectable DRAM error", RESET),
    172: ("uncorrectable SRAM error", RESET),
}
"""After these the GPU cannot be relied on: RESET_GPU and RESTART_BM of the catalogue, and its NVLink workflows."""

COPED = "restart the program if it died; watch this GPU: reset it at the next chance, drain it if it comes again"

WATCH: dict[int, str] = {
    92: "high rate of single-bit ECC errors",
    94: "contained ECC error",
    109: "context switch timeout",
    121: "corrected error of the C2C link",
    157: "resource retirement failed: no spare is left",
    161: "channel retirement failed: no spare is left",
    163: "power smoothing is off",
    164: "power smoothing's circuit wears out",
    165: "power smoothing's circuit is worn out",
    168: "less GPU memory than it should have",
}
"""Hardware that went on. 109 is RESET_GPU in the catalogue, and mostly a program's: Meta does not page for it."""

APPLICATION: dict[int, str] = {
    8: "GPU stopped processing: watchdog",
    11: "invalid or corrupted push buffer",
    13: "graphics engine exception",
    25: "invalid or illegal push buffer",
    31: "GPU memory page fault",
    32: "invalid or corrupted push buffer stream",
    60: "video processor exception",
    68: "video decoder exception",
    69: "graphics engine class error",
    80: "corrupted data sent to the GPU",
    82: "JPEG engine error",
    86: "optical flow engine exception",
    139: "optical flow engine exception",
}
"""RESTART_APP of the catalogue: an illegal access or a bad kernel of the program, before anything else."""

APPLICATION_RANGES = (range(39, 42), range(70, 73), range(75, 78), range(83, 86), range(88, 90), range(96, 106),
                      range(126, 136))  # fmt: skip
"""Copy and video engines, numbered through."""

IGNORED: dict[int, str] = {
    14: "unused",
    37: "driver firmware warning",
    38: "driver firmware error",
    43: "GPU channel stopped after a program's fault",
    44: "context switch fault after a program's fault",
    45: "clean-up after a program ended or another fault",
    63: "row remapping recorded",
    66: "illegal access by the driver",
    67: "illegal access by the driver",
    93: "InfoROM written too often",
    106: "management bus test",
    107: "management bus test",
    137: "NVLink access without the right to it",
    141: "channel fast path",
    152: "deep-learning accelerator fault",
    153: "deep-learning accelerator timeout",
    160: "memory channel retired",
}
"""IGNORE of the catalogue; 45 follows every killed program, and 63 is what the rule on row remapping tells."""

OTHER: dict[int, str] = {
    78: "vGPU could not start",
    142: "video encoder error",
    151: "key rotation error",
    159: "C2C non-data error",
    166: "traffic before the link was encrypted",
    170: "interrupt in confidential mode",
}
"""In the catalogue, and of no class that says what it means for a training."""

RECOVERY = 154
RECOVERED = re.compile(r"\bto\s+(?:0x[0-9a-fA-F]+\s*)?\(\s*(?P<action>[^()]{1,60}?)\s*\)", re.IGNORECASE)
"""Of `GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)` what it is now."""

ALWAYS_FATAL = frozenset({10003, 12020, 22003, 22011, *range(23001, 23018)})
"""SXids after which no link of the NVSwitch works: the host must be rebooted."""

LOOK_IT_UP = "look it up: docs.nvidia.com/deploy/xid-errors; until then, watch this GPU"


def meaning(code: int, text: str | None = None) -> XidMeaning:
    """What an Xid means. Of 154 the text is the verdict."""
    if code == RECOVERY:
        return _recovery(text)
    if code in HARDWARE:
        return XidMeaning("hardware", *HARDWARE[code])
    if code in WATCH:
        return XidMeaning("watch", WATCH[code], COPED)
    if code in IGNORED:
        return XidMeaning("ignored", IGNORED[code])
    if code in APPLICATION:
        return XidMeaning("application", APPLICATION[code], RESTART)
    if any(code in numbers for numbers in APPLICATION_RANGES):
        return XidMeaning("application", "engine exception", RESTART)
    return XidMeaning("unknown", OTHER.get(code, "in no list of ours"), LOOK_IT_UP)


def _recovery(text: str | None) -> XidMeaning:
    """The driver sums up other faults: what must be done to get the GPU back."""
    found = RECOVERED.search(text or "")
    if found is None:
        return XidMeaning(
            "watch", "GPU recovery action changed", "nvidia-smi -q says what it asks for (Recovery Action)"
        )
    action = found["action"]
    if action.lower() == "none":
        return XidMeaning("ignored", "GPU recovery action: none any more")
    return XidMeaning("hardware", f"the driver asks for: {action}", f"drain the node, then: {action}")


def switch_meaning(code: int, text: str | None = None) -> XidMeaning:
    """What an SXid means: the driver's own text says whether it is fatal."""
    words = (text or "").lower()
    if code in ALWAYS_FATAL:
        return XidMeaning("hardware", "fatal to the whole NVSwitch fabric", "drain the node and reboot it")
    if "non-fatal" in words:
        return XidMeaning("watch", "NVSwitch, non-fatal", "watch it: jobs may end with Xid 45 where a link retrained")
    if "fatal" in words:
        return XidMeaning("hardware", "fatal to a link of the NVSwitch", NVLINK)
    return XidMeaning("unknown", "NVSwitch fault", LOOK_IT_UP)
