"""Finds the dumps of PyTorch's flight recorder on a node, and says of each rank what it has called last.

A dump is a pickle, and whoever can write it may have made it up. So it is read in a child process that knows no class
or function, and that ends when it needs much memory or time.
"""

import json
import os
import pickle
import re
import resource
import signal
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULTS = ("/tmp/nccl_trace_rank_", "~/.cache/torch/comm_lib_trace_rank_", "~/.cache/torch/nccl_trace_rank_")
"""Where torch writes without a setting, before the rank, in several versions."""
SETTINGS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
PROCESS = re.compile("^/proc/[0-9]+/root")

LARGEST = 2**25
"""Bytes of a dump. 2,000 entries, torch's default, take 1 to 2 MiB."""
MEMORY, SECONDS = 2**30, 5
"""What reading one dump may need."""
TOO_MUCH = "reading it took too much memory or time"
"""On a busy machine, its time is over before its memory."""
ANSWER, TEXT, FAR = 2**18, 200, 2**63
YOUNG = 20.0
"""Seconds. What was written before does not become whole any more."""

LIBRARY = re.compile(r"^(?!/)|/(?:site|dist)-packages/|/lib/python3|\.(?:so|cpp|h)\b")
"""Files that are none of the trainer."""


class Reader(pickle.Unpickler):
    """Reads containers, numbers and texts."""

    def find_class(self, module: str, name: str) -> "Any":
        raise pickle.UnpicklingError("it names " + module + "." + name)


def prefixes(pid: int) -> "tuple[int, list[str]]":
    """The owner of a process, and where it writes its dump, before its rank. While it lives, its own mounts count."""
    proc = f"/proc/{pid}"
    try:
        with open(proc + "/environ", errors="surrogateescape") as file:
            values = dict(pair.partition("=")[::2] for pair in file.read(2**20).split("\0"))
        owner, directory = os.stat(proc).st_uid, os.readlink(proc + "/cwd")
    except OSError:
        return 0, []
    cache = values.get("XDG_CACHE_HOME") or values.get("HOME", "/tmp") + "/.cache"
    named = [values[name] for name in SETTINGS if values.get(name)][:1] or DEFAULTS
    return owner, [proc + "/root" + os.path.join(directory, one.replace("~/.cache", cache)) for one in named]


def found(asked: "Any", known: "list[str]") -> "dict[int, list[str]]":
    """The files of each rank."""
    files = {}  # type: dict[int, list[str]]
    for prefix in dict.fromkeys(
        known + [PROCESS.sub("", one) for one in known + list(map(os.path.expanduser, DEFAULTS))]
    ):
        folder, begin = os.path.split(prefix)
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            rank = name[len(begin) :]
            if name.startswith(begin) and re.match(r"[0-9]{1,6}\Z", rank):
                files.setdefault(int(rank), []).append(prefix + rank)
    return {rank: files[rank] for rank in sorted(files) if asked["ranks"] is None or rank in asked["ranks"]}


def read(paths: "list[str]", asked: "Any", owners: "set[int]") -> "Any":
    """What the newest of these dumps says, of our own if there are any. A text says why there is nothing, and None that
    it may still be written."""
    try:
        path = max(paths, key=lambda one: (os.lstat(one).st_uid in owners, os.lstat(one).st_mtime))
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            at = status.st_mtime - asked["ahead"]
            if not stat.S_ISREG(status.st_mode) or status.st_uid not in owners or status.st_size > LARGEST:
                return "it is of another user, too large, or no file"
            told = condensed(file, asked["ahead"]) if at >= asked["since"] else "it was written before"
    except OSError as error:
        return error.strerror
    if isinstance(told, list):
        return [at, PROCESS.sub("", path), *told]
    return None if at >= asked["since"] and time.time() < status.st_mtime + YOUNG else told


def condensed(file: "Any", ahead: float) -> "Any":
    """What a dump says, as a child process reads it; a text says why there is nothing."""
    receiver, sender = os.pipe()
    child = os.fork()
    if not child:
        try:
            signal.alarm(SECONDS)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            try:
                answer = json.dumps(summary(Reader(file).load(), ahead))
            except Exception as error:
                why = f"it cannot be read: {type(error).__name__} {error}".strip()[:TEXT]
                answer = json.dumps(TOO_MUCH if isinstance(error, MemoryError) else why)
            os.write(sender, answer[:ANSWER].encode())
            os._exit(len(answer) > ANSWER)
        finally:  # it never returns: else there would be two of us
            os._exit(1)
    os.close(sender)
    with os.fdopen(receiver) as pipe:
        answer = pipe.read()
    return TOO_MUCH if os.waitpid(child, 0)[1] else json.loads(answer)


def summary(dump: "Any", ahead: float) -> "Any":
    """From when on it has all operations (0: it has lost none), when the last one was called, and of each process group
    the last operations. An operation is a number, its names, sizes, whether it is finished, when
    it was called, and from which line."""
    groups = {}  # type: dict[tuple[str, str, str], dict[int, list[Any]]]
    for entry in dump.get("entries", ()):
        library, _, called = entry["profiling_name"].partition(":")
        called = called.replace("all_to_all", "alltoall").replace("all_", "all").upper()
        name, described = entry["process_group"]
        is_p2p = entry.get("is_p2p", "->" in called or "<-" in called)
        row = [
            int(entry["p2p_seq_id" if is_p2p else "collective_seq_id"]) % FAR,  # PyTorch 2.3 counts both together
            called,
            str(entry["input_sizes"]),
            # gloo leaves the state as it was; of NCCL, what is retired without an end has timed out
            entry["state"] == "completed" or (library == "gloo" and bool(entry.get("retired"))),
            int(entry["time_created_ns"]) % FAR / 1e9 - ahead,
            line(entry.get("frames") or ()),
        ]
        described = "default_pg" if name == "0" else name if described in ("", "undefined") else described
        before = groups.setdefault(("p2p " * is_p2p + library, name, described), {}).setdefault(row[0], row)
        if before is not row:  # of operations that are called together, the last one alone has a state
            before[1:4] = [before[1] + ", " + called, before[2] + row[2], before[3] or row[3]]
    config, calls = dump.get("pg_config") or {}, [row[4] for rows in groups.values() for row in rows.values()]
    told = [
        [" ".join(key), key[2], members(config.get(key[1])), max(rows), ends(rows, key[0].startswith("p2p"))]
        for key, rows in groups.items()
    ]
    is_whole = any(entry.get("record_id") == 0 for entry in dump.get("entries", ()))
    return [0.0 if is_whole else min(calls, default=0.0), max(calls, default=0.0), told]


def ends(rows: "dict[int, list[Any]]", is_p2p: bool) -> "list[Any]":
    """The last operations that have finished, and the first ones that have not. Collectives finish in their order."""
    over = max([number for number, row in rows.items() if row[3] and not is_p2p], default=-1)
    ordered = [[*row[:3], row[3] or number <= over, *row[4:]] for number, row in sorted(rows.items())]
    done, left = ([row for row in ordered if row[3] is which] for which in (True, False))
    return [[one[:TEXT] if isinstance(one, str) else one for one in row] for row in done[-3:] + left[:8]]


def members(group: "Any") -> str:
    """The ranks of a group: `0-7`, or `0,8`. Empty: not known; gloo stores the last group under an empty name."""
    ranks = sorted(map(int, re.findall("[0-9]{1,6}", group["ranks"]))) if group else []
    is_row = ranks and ranks == [*range(ranks[0], ranks[-1] + 1)]
    return f"{ranks[0]}-{ranks[-1]}" if is_row else ",".join(map(str, ranks))


def line(frames: "Any") -> str:
    """The innermost line of the trainer, else the innermost one outside of torch."""
    own = [one for one in frames if not LIBRARY.search(one["filename"])]
    own += [one for one in frames if one["filename"].startswith("/") and "/torch/" not in one["filename"]]
    return " at " + "{}:{} {}".format(own[0]["filename"], own[0]["line"], own[0]["name"])[-TEXT:] if own else ""


def look(asked: "Any") -> "Any":
    """The dumps of the ranks of a job that were written `since` then. All times are by the clock of who asks; ours is
    `ahead` of it."""
    until, processes = time.time() + asked["seconds"], [prefixes(pid) for pid in asked["pids"]]
    owners = {os.getuid(), 0, *(owner for owner, _ in processes)}
    known = sorted({one for _, own in processes for one in own})
    files = found(asked, known + asked["paths"])
    told = dict.fromkeys(files)  # type: dict[int, Any]
    while None in told.values() and time.time() < until:
        for rank in [rank for rank in files if told[rank] is None and time.time() < until]:
            told[rank] = read(files[rank], asked, owners)
        time.sleep(1.0 if None in told.values() else 0.0)
    return told, [PROCESS.sub("", one) for one in known]
