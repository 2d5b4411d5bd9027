"""Switch files on a host by POSIX sh: looked at, created, removed; and the sentence for each way that can fail.

Paths and texts go in as arguments, never into a script. The scripts are one line each: csh cannot quote more.
"""

from __future__ import annotations

import msgspec

from trainmon.actions.planning import FileStat
from trainmon.lib import Seconds, clean
from trainmon.transport.shell import Completed

TIMEOUT: Seconds = 10.0
"""A directory on a mount that hangs does not answer at all."""

LATE = 20
"""Seconds after which a script that hung meanwhile creates nothing any more: a switch must not appear when a dead
mount comes back hours later, and end a run that nobody wants to end then."""

THERE, ABSENT, EXISTS, DIRECTORY, CHANGED, TOO_LATE = 40, 41, 42, 43, 44, 45

_BEGIN = (
    'LC_ALL=C; export LC_ALL; p=$1; case "$p" in -*) p=./$p;; esac; '
    'case "$p" in */*) d=${p%/*}/;; *) d=./;; esac; '
    """mark() { stat -L -c '%i %s %Y %U' "$p" 2>/dev/null || stat -c '%i %s %Y %U' "$p"; }; """
    'show() { mark; head -c 500 "$p" 2>/dev/null; }; '
)

LOOK = _BEGIN + (
    f'if [ -e "$p" ] || [ -L "$p" ]; then show; exit {THERE}; fi; '
    f'ls -d "$d." >/dev/null || exit 1; '
    # Only ls says why: no such file, or a directory on the way that may not be searched.
    f'w=$(ls -d "$p" 2>&1 >/dev/null); case "$w" in *"No such file or directory") exit {ABSENT};; esac; '
    "printf '%s\\n' \"$w\" >&2; exit 1"
)

CREATE = _BEGIN + (
    "umask 002; began=$(date +%s); t=${d}.trainmon-tui-$3; made=; "
    """trap '[ -z "$made" ] || rm -f "$t"' EXIT; trap 'exit 1' HUP INT TERM PIPE; """
    'ls -d "$d." >/dev/null || exit 1; '
    f'if [ -d "$p" ]; then exit {DIRECTORY}; fi; '
    f'if [ -e "$p" ] || [ -L "$p" ]; then show; exit {EXISTS}; fi; '
    'set -C; true >"$t" || exit 1; made=1; set +C; '
    # cat, and not the shell's own printf, which says "I/O error" of a full disk too.
    'printf \'%s\\n\' "$2" | cat >>"$t" || exit 1; chmod 664 "$t" || exit 1; '
    f"if [ $(($(date +%s) - began)) -gt {LATE} ]; then exit {TOO_LATE}; fi; "
    'if ln "$t" "$p" 2>/dev/null; then exit 0; fi; '
    # A server that was asked twice says that it exists, and it is ours.
    'if [ "$p" -ef "$t" ]; then exit 0; fi; '
    f'if [ -e "$p" ] || [ -L "$p" ]; then show; exit {EXISTS}; fi; '
    # No hard links there: created under its own name, never over another; half a line may be seen for a moment.
    'set -C; true >"$p" || exit 1; set +C; '
    'if printf \'%s\\n\' "$2" | cat >>"$p" && chmod 664 "$p"; then exit 0; fi; rm -f "$p"; exit 1'
)

REMOVE = _BEGIN + (
    f'if [ -d "$p" ]; then exit {DIRECTORY}; fi; '
    f'if [ -e "$p" ] || [ -L "$p" ]; then :; else ls -d "$d." >/dev/null || exit 1; exit {ABSENT}; fi; '
    f'if [ -n "$2" ] && [ "$(mark)" != "$2" ]; then show; exit {CHANGED}; fi; '
    f'rm -f "$p" || exit 1'
)


class Result(msgspec.Struct, frozen=True):
    """What became of an attempt to create or remove one. `words` say it, or why it failed."""

    done: bool
    words: str


def look(path: str) -> tuple[str, ...]:
    """argv that looks at it; see `seen`."""
    return ("sh", "-c", LOOK, "trainmon-tui", path)


def create(path: str, text: str, unique: str) -> tuple[str, ...]:
    """argv that creates it with one line of text, whole or not at all; `unique` names its temporary file."""
    return ("sh", "-c", CREATE, "trainmon-tui", path, text, unique)


def remove(path: str, mark: str) -> tuple[str, ...]:
    """argv that removes it if it is still the file with that mark; any file for an empty mark."""
    return ("sh", "-c", REMOVE, "trainmon-tui", path, mark)


def seen(path: str, answer: Completed) -> FileStat:
    """What look() found."""
    if answer.status == THERE:
        mark, _, rest = answer.stdout.decode("utf-8", "replace").partition("\n")
        fields = mark.split(" ", 3)
        is_read = len(fields) == 4 and fields[2].isdigit()
        return FileStat(
            path=path,
            exists=True,
            mark=mark if is_read else "",
            armed_at=float(fields[2]) if is_read else None,
            by=clean(fields[3], 100) if is_read else None,
            text=clean(rest.partition("\n")[0], 500),
        )
    if answer.status == ABSENT:
        return FileStat(path=path, exists=False)
    return FileStat(path=path, error=why(path, answer))


def created(path: str, answer: Completed) -> Result:
    """What create() came to."""
    name = clean(path)
    match answer.status:
        case 0:
            return Result(True, f"{name} is there")
        case _ if answer.status == EXISTS:
            return Result(False, f"{name} exists already{_whose(path, answer)}: it was left as it is")
        case _ if answer.status == TOO_LATE:
            return Result(False, f"{name} was not created: its filesystem took longer than {LATE} s to answer")
    return Result(False, f"{name} was not created: {why(path, answer)}")


def removed(path: str, answer: Completed) -> Result:
    """What remove() came to. A file that is gone already is as wanted."""
    name = clean(path)
    match answer.status:
        case 0:
            return Result(True, f"{name} is removed")
        case _ if answer.status == ABSENT:
            return Result(True, f"{name} was gone already")
        case _ if answer.status == CHANGED:
            whose = _whose(path, answer)
            return Result(False, f"{name} is another file than the one that was seen{whose}: it was left")
    return Result(False, f"{name} was not removed: {why(path, answer)}")


def _whose(path: str, answer: Completed) -> str:
    sight = seen(path, Completed(THERE, answer.stdout, b""))
    by = f", by {sight.by}" if sight.by else ""
    return f"{by}: “{sight.text}”" if sight.text else by


CAUSES: dict[str, str] = {
    "No such file or directory": "its directory is missing",
    "Directory nonexistent": "its directory is missing",
    "nonexistent directory": "its directory is missing",
    "Not a directory": "what should be its directory is none",
    "Permission denied": "no permission in its directory",
    "Operation not permitted": "it is not permitted (another's file in a directory with the sticky bit, or immutable)",
    "Read-only file system": "its filesystem is read-only",
    "No space left on device": "no space is left on its filesystem, or no inodes (df -h, df -i)",
    "Disk quota exceeded": "the disk quota is used up",
    "Input/output error": "its filesystem gives I/O errors",
    "I/O error": "its filesystem gives I/O errors",
    "Stale file handle": "its directory was removed or remounted on the server (stale file handle)",
    "Transport endpoint is not connected": "its filesystem has lost its server",
    "Host is down": "the server of its filesystem is down",
    "Connection timed out": "the server of its filesystem does not answer",
    "File name too long": "its name is too long for its filesystem",
    "Too many levels of symbolic links": "its path runs in circles of symbolic links",
    "File too large": "its filesystem takes no file of that size here (a limit of the session)",
    "Is a directory": "it is a directory",
}
"""How strerror ends a line in the C locale, in an operator's words; dash has words of its own for some."""


def why(path: str, answer: Completed) -> str:
    """Why a script failed, in a sentence, from the end of what it complained."""
    if answer.status == DIRECTORY:
        return "it is a directory"
    said = clean(answer.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2], 400)
    for ending, words in CAUSES.items():
        if said.endswith(ending):
            return words
    if answer.status == 127 or answer.status < 0:
        return f"no POSIX shell ran there ({said or answer.status})"
    return said or f"the shell on the host ended with status {answer.status}"
