"""Who tells people of the alerts, as the program that does so writes it down for every other one."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path

import msgspec

from trainmon.clock import Instant
from trainmon.model_alerts import Channel

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class SourceNote(msgspec.Struct, frozen=True, kw_only=True):
    """How one source of facts is doing, in short."""

    name: str
    kind: str
    health: str
    seen_at: Instant | None = None
    error: str | None = None


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """One program, told apart from every other one that is or was."""

    pid: int
    host: str
    boot_id: str = ""
    """Of this start of the machine: after another one no process of before is alive."""
    name: str = ""
    """Random: a process number is used again."""


class DutyNote(msgspec.Struct, frozen=True, kw_only=True):
    """What the program on duty says of itself, every few seconds."""

    holder: Holder
    program: str = ""
    """`alerts-only` or `dashboard`."""
    started_at: Instant
    last_tick_at: Instant | None = None
    """When it last went through all rules."""
    written_at: Instant
    words: str | None = None
    """What is wrong with it, in a sentence."""
    sources: tuple[SourceNote, ...] = ()
    channels: tuple[Channel, ...] = ()


class DutyNow(msgspec.Struct, frozen=True, kw_only=True):
    """The newest note, and whether the program that wrote it is still there."""

    note: DutyNote
    is_held: bool
    """Whether some program holds the duty now; known for sure on a disk of this machine."""


def ourselves() -> Holder:
    """This program."""
    return Holder(pid=os.getpid(), host=socket.gethostname(), boot_id=_boot_id(), name=secrets.token_hex(8))


def _boot_id() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""  # not Linux: a process number must then do
