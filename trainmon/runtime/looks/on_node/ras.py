"""Asks NCCL's RAS service on this node about a job, once. It asks no service that is not known to be safe to ask.

`asked` has the `port`, `pids` (the processes of the job on this node), `versions` (of NCCL, from its log), and
`seconds`. The answer has either `text` or `why`, and the `versions` that are known.
"""

import glob
import os
import re
import socket
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST = 16 * 1024 * 1024
"""Bytes of an answer."""
TRIES = 8
"""Connections: the kernel chooses the process for each. One that is stopped accepts it and never answers."""
FIRST_BYTE = 3.0
"""Seconds that a process which is not stopped needs to answer its first command, at most."""

LISTEN = "0A"
FIRST = (2, 28, 7)
"""The first version that answers in JSON. Asking 2.27.3 has crashed jobs."""

LIBRARY = re.compile(r"/[^\n]*/libnccl\.so[^\n/]*")


def look(asked: "Any") -> "dict[str, Any]":
    pids = [pid for pid in asked["pids"] if os.path.exists("/proc/%d" % pid)]
    if not pids:
        return {"why": "gone"}
    listening = listeners(asked["port"])
    if not listening:
        return {"why": "off"}
    uids = {os.stat("/proc/%d" % pid).st_uid for pid in pids}
    places = {inode: place for inode, (uid, place) in sorted(listening.items()) if uid in uids}
    if not places:
        return {"why": "foreign"}
    owned = owners(pids, set(places))
    mine = [pid for pid in owned.values() if pid in pids]
    if not mine:
        return {"why": "other jobs" if any(os.access("/proc/%d/fd" % pid, os.R_OK) for pid in pids) else "hidden"}
    in_log = set(map(numbers, asked["versions"]))
    found = [versions(pid) or (in_log if pid in pids else set()) for pid in set(owned.values())]
    known = set().union(*found)
    seen = {"versions": sorted(".".join(map(str, version)) for version in known)}  # type: dict[str, Any]
    if known and min(known) < FIRST:
        return dict(seen, why="old version")
    if len(owned) < len(places) or not all(found):
        return dict(seen, why="unknown version")
    has_others, until = len(mine) < len(places), time.time() + asked["seconds"]
    return dict(seen, **ask(list(places.values()), set(mine), has_others, until))


def ask(places: "Any", pids: "set[int]", has_others: bool, until: float) -> "dict[str, Any]":
    """The first answer of the job; else why there is none."""
    why = "silent"
    for attempt in range(TRIES):
        try:
            data = one_answer(places[attempt % len(places)], until)
        except (OSError, EOFError):
            continue
        if data is None:
            return {"why": "slow"}
        if len(data) >= MOST:
            return {"why": "too long"}
        text = data.decode("utf-8", "replace")
        named = set(map(int, re.findall(r'"pid": (\d+)', text)))
        if not has_others or named & pids:
            return {"text": text}
        why = "other jobs"
    return {"why": why}


def one_answer(place: "tuple[str, int]", until: float) -> "bytes | None":
    """All that one connection answers, up to a limit; None if it does not end in time. Raises OSError and EOFError if
    it does not begin."""
    family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as opened, opened.makefile("rwb") as stream:
        opened.settimeout(FIRST_BYTE)
        opened.connect(place)
        says(stream, b"TIMEOUT 5\n")
        if not says(stream, b"SET FORMAT json\n").startswith(b"OK"):
            raise EOFError("it knows no JSON")
        stream.write(b"STATUS\n")
        stream.flush()
        opened.settimeout(max(0.1, until - time.time()))
        try:
            return stream.read(MOST)
        except OSError:
            return None


def says(stream: "Any", command: bytes) -> bytes:
    """The line that answers a command."""
    stream.write(command)
    stream.flush()
    line = stream.readline(1024)  # type: bytes
    if not line:
        raise EOFError("it closes the connection")
    return line


# ---- which processes listen, and which NCCL they have ----


def listeners(port: int) -> "dict[str, tuple[int, tuple[str, int]]]":
    """By inode: the user of each socket that listens on the port, and how it is reached."""
    found = {}
    for name in ("tcp", "tcp6"):
        with suppress(OSError), open("/proc/net/" + name) as table:
            for row in [line.split() for line in table][1:]:
                host, _, at = row[1].partition(":")
                if row[3] == LISTEN and int(at, 16) == port:
                    found[row[9]] = (int(row[7]), (reached(host), port))
    return found


def reached(host: str) -> str:
    """The address at which a socket is reached that listens there. The kernel writes words of 4 octets, little-endian
    on all machines that have GPUs."""
    octets = b"".join(bytes.fromhex(host[at : at + 8])[::-1] for at in range(0, len(host), 8))
    if not any(octets):
        return "::1" if len(octets) > 4 else "127.0.0.1"
    return socket.inet_ntop(socket.AF_INET6 if len(octets) > 4 else socket.AF_INET, octets)


def owners(pids: "list[int]", inodes: "set[str]") -> "dict[str, int]":
    """By inode: a process that has such a socket, one of the job if there is one."""
    wanted = {"socket:[%s]" % inode: inode for inode in inodes}
    found = {}  # type: dict[str, int]
    for path in glob.iglob("/proc/[0-9]*/fd/*"):
        with suppress(OSError):
            inode, pid = wanted.get(os.readlink(path)), int(path.split("/")[2])
            if inode is not None and (inode not in found or pid in pids):
                found[inode] = pid
    return found


def versions(pid: int) -> "set[tuple[int, ...]]":
    """The versions of NCCL that a process has loaded, by the names of files: `libnccl.so.2.26.2`, or that of the
    package beside it. Empty: none, or one that its file does not tell."""
    found = set()
    try:
        with open("/proc/%d/maps" % pid, errors="replace") as maps:
            paths = set(LIBRARY.findall(maps.read()))
    except OSError:
        return set()
    for path in paths:
        site = glob.escape("/proc/%d/root%s" % (pid, path.partition("/nvidia/nccl/")[0]))
        texts = re.findall(r"\.so\.(\d+\.\d+\.\d+)$", path) or re.findall(
            r"-(\d+\.\d+\.\d+)[\w.]*\.dist-info", " ".join(glob.glob(site + "/nvidia_nccl_cu*.dist-info"))
        )
        if not texts or path.endswith("(deleted)"):
            return set()
        found |= {numbers(text) for text in texts}
    return found


def numbers(version: str) -> "tuple[int, ...]":
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
