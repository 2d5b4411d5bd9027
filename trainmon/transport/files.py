"""Reads a range of a file on a host, or finds a text in it, by POSIX sh over its connection."""

from __future__ import annotations

from typing import NamedTuple

from trainmon.lib import CommandFailed, Seconds, clean
from trainmon.transport.shell import Shell

TIMEOUT: Seconds = 10.0

READ = (
    'is() { stat "$@" 2>/dev/null; }; p=$2; case "$p" in /*) ;; *) p=./$p;; esac; ls -dL "$p" >/dev/null || exit 1; '
    'owners=; links=0; while [ -L "$p" ] && [ $((links += 1)) -le 40 ]; do '
    'owners="$owners $(is -c %u "$p" || echo unknown)"; t=$(readlink "$p"); '
    'case "$t" in /*) p=$t;; *) p=${p%/*}/$t;; esac; done; '
    '[ -f "$p" ] || { echo "$(is -L -c %F "$p") instead of a file" >&2; exit 1; }; '
    """exec 3<"$p"; opened=$(is -L -c '%d %i %u' /dev/fd/3); """
    """[ "$opened" = "$(is -c '%d %i %u' "$p")" ] || { echo "another file has just come there" >&2; exit 1; }; """
    'for owner in $owners; do case " 0 $(id -u) ${opened##* } " in *" $owner "*) ;; '
    '*) echo "a symbolic link of another user, not of the owner of the file" >&2; exit 1;; esac; done; '
    'size=$(is -L -c %s /dev/fd/3 || wc -c <"$p"); echo "${opened% *}|$((size))"; '
    'case "$1" in -*) exec tail -c "${1#-}" <&3;; esac; '
    'range() { tail -c "+$(($1 + 1))" <&3 | head -c "$2"; }; '
    'if [ -z "$4" ]; then range "$1" "$3"; exit; fi; '
    'range "$1" "$3" | LC_ALL=C grep -aiobE -e "$4" | cut -d: -f1 | tail -n "$5"'
)
"""Follows symbolic links by the rule of the probe (`open_linked`), and reads the file that it has judged. Prints what
identifies that file and its size, then the bytes, or with a pattern the offsets of its last matches in the range."""


class FileRange(NamedTuple):
    """What was read."""

    file: str
    """What identifies the file on its host; empty if the host cannot tell."""
    size: int
    """Of the whole file, in bytes."""
    start: int
    data: bytes
    """The bytes, or offsets of matches from `start` on, one a line."""


def read_range(
    shell: Shell,
    path: str,
    start: int,
    length: int = 0,
    *,
    pattern: str = "",
    most: int = 0,
    timeout: Seconds = TIMEOUT,
) -> FileRange:
    """Read `length` bytes from `start` on; with a negative `start`, that many bytes at the end. With a `pattern` (POSIX
    ERE on bytes, ASCII in any case), find its last matches in the range instead, at most `most`.

    Raises:
        TrainmonError: when the file cannot be read.
    """
    argv = ("sh", "-c", READ, "trainmon-tui", str(start), path, str(length), pattern, str(most))
    answer = shell.run(argv, timeout=timeout)
    if answer.status != 0 or (pattern and answer.stderr):
        last = answer.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        why = clean(last.rpartition(": ")[2], 300) or f"the shell on the host ended with status {answer.status}"
        raise CommandFailed(f"{clean(path)}: {why}")
    head, _, data = answer.stdout.partition(b"\n")
    file, _, size = head.decode("ascii", "replace").rpartition("|")
    return FileRange(file, int(size), start if start >= 0 else max(0, int(size) + start), data)
