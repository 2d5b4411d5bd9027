"""Parses the kernel log's lines about GPUs. Loaded only when there is such a line: re takes 1 MiB."""

import re

LINE = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\).*?: (\d+),? ?(.*)")
SWITCH_LINE = re.compile(r"(SXid) \((?:PCI:)?[0-9a-fA-F:.]+\): (\d+),? ?(.*)")
OFF_THE_BUS = re.compile(r"NVRM: (?:The NVIDIA )?GPU (?:at PCI:)?([0-9a-fA-F:.]+):? .*fallen off the bus")


def address(text: str) -> str:
    """A PCI address in one spelling: `00000000:05:00.0` and `0000:05:00` give `0000:05:00`."""
    parts = text.lower().partition(".")[0].split(":")
    return ":".join([parts[0][-4:].rjust(4, "0"), *parts[1:]])


def parsed(text: str) -> "tuple[str | None, int, str] | None":
    """PCI address, Xid and text of a kernel message about a GPU; None for any other message."""
    found = LINE.search(text)
    if found:
        return address(found.group(1)), int(found.group(2)), found.group(3).strip()
    found = SWITCH_LINE.search(text)
    if found:
        return None, int(found.group(2)), ("NVSwitch: " + found.group(3)).strip()
    found = OFF_THE_BUS.search(text)
    return (address(found.group(1)), 79, "GPU has fallen off the bus.") if found else None
