"""The part of trainmon-run that writes the end of the receipt. See trainmon_run.py."""

import posix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

TAIL = 65536
"""Bytes of the end of the output that are kept."""


def finish(
    folder: str,
    facts: "dict[str, Any]",
    options: "Any",
    ended: str,
    json_text: "Callable[[object], str]",
    write: "Callable[[str, str, str], None]",
) -> str:
    """Write the end of the receipt. Returns it in a sentence."""
    status, at, pid, user, system, memory = ended.split()
    by_signal, code = posix.WIFSIGNALED(int(status)), int(status)
    try:
        output = ended_output(folder, facts)
    except OSError as error:  # its file was removed, or is not for us to read
        output = {"error": str(error)}
    facts["end"] = end = {
        "v": 1,
        "ended_at": float(at),
        "pid": int(pid),
        "status": None if by_signal else posix.WEXITSTATUS(code),
        "signal": posix.WTERMSIG(code) if by_signal else None,
        "core": by_signal and posix.WCOREDUMP(code),
        "user_s": float(user),
        "system_s": float(system),
        "max_rss_bytes": int(memory) * 1024,
        "output": output,
        "artifacts": {"message": "", "kept": [], "left_out": []},
    }
    write(folder, "end.json", json_text(end))
    how = (
        "was ended by signal %d" % posix.WTERMSIG(code)
        if by_signal
        else "ended with status %d" % posix.WEXITSTATUS(code)
    )
    name, seconds = options.run or options.command[0], float(at) - facts["started_at"]
    return "%s %s after %ds on %s." % (name, how, seconds, facts["host"])


def attach(
    folder: str,
    facts: "dict[str, Any]",
    options: "Any",
    part: "Callable[[str], dict[str, Any]]",
    json_text: "Callable[[object], str]",
    write: "Callable[[str, str, str], None]",
) -> str:
    """Keep the attached files, and add them to the end of the receipt. Returns how many there are, in a sentence."""
    found = part("run_extras")["attached"](folder, options.attach, options.budget)
    facts["end"]["artifacts"] = found
    write(folder, "end.json", json_text(facts["end"]))
    return str(found["message"])


def ended_output(folder: str, facts: "dict[str, Any]") -> "dict[str, object] | None":
    """Where the output ended: its file, its size, and a copy of its last part. None if it was no file."""
    log = facts["log"]
    known = facts["stdout"] if log is None else {"path": log, "offset": facts["log_offset"], "kind": "file"}
    if known is None or known["kind"] != "file":
        return None
    # Somebody else may have put another file there: a private one of ours, or a FIFO, which blocks.
    with open(posix.open(known["path"], posix.O_RDONLY | posix.O_NONBLOCK | posix.O_CLOEXEC), "rb") as file:
        found = posix.fstat(file.fileno())
        if found.st_ino != known.get("inode", found.st_ino):
            raise OSError("%s is another file now" % known["path"])
        size = found.st_size
        begin = known["offset"] if known["offset"] <= size else 0
        file.seek(max(begin, size - TAIL))
        tail = file.read(TAIL)
    place = folder + "/tail.log"
    with open(place, "wb") as copy:
        copy.write(tail)
    return {"path": known["path"], "offset": size, "tail": place, "tail_bytes": len(tail), "tail_sha256": sha256(tail)}


def sha256(data: bytes) -> str:
    """The digest; hashlib takes 4 ms to import."""
    for name in ("_sha256", "_sha2"):
        try:
            return str(__import__(name).sha256(data).hexdigest())
        except ImportError:
            pass  # another Python has it elsewhere
    return str(__import__("hashlib").sha256(data).hexdigest())
