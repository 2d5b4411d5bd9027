"""Reads a range of a file on a host, or finds a text in it, by POSIX sh over its connection."""

from __future__ import annotations

import zlib
from typing import NamedTuple

from trainmon.lib import CommandFailed, Seconds, clean
from trainmon.transport.shell import Shell

TIMEOUT: Seconds = 10.0
GZIP = 31
"""For zlib: data with the header of gzip."""
BEGIN = b"trainmon-tui|"
"""What comes before is of login scripts that print."""

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
    'size=$(is -L -c %s /dev/fd/3 || wc -c <"$p"); older=; '
    '[ "$1" != 0 ] || [ "$3" = 0 ] || older=$(ls -td "$p"[.-][0-9]* 2>/dev/null | sed "s,.*/,," | tr "\\n" /); '
    'gzip=; [ "$1" -lt 0 ] || [ -n "$4" ] || gzip=$(command -v gzip); '
    'echo "trainmon-tui|${opened% *}|$((size))|$gzip|$older"; '
    'case "$1" in -*) exec tail -c "${1#-}" <&3;; esac; '
    'range() { { dd bs=65536 skip="$(($1 / 65536))" count=0 2>/dev/null; tail -c "+$(($1 % 65536 + 1))"; } <&3 '
    '| head -c "$2"; }; '
    'if [ -z "$4" ]; then range "$1" "$3" | "${gzip:-cat}"; exit; fi; export LC_ALL=C TEXT="$4"; '
    "nice=$(command -v nice >/dev/null && echo nice -n 19); "
    """range "$1" "$3" | tr '\\000\\r' '\\n\\n' | $nice awk 'BEGIN { text = tolower(ENVIRON["TEXT"]) } """
    "{ if (match(tolower($0), text)) print at + RSTART - 1; at += length($0) + 1 } END { print at + 0 }"
    """' | tail -n "$(($5 + 1))" """
)
"""Follows symbolic links by the rule of the probe (`open_linked`), and reads the file that it has judged. Prints what
identifies that file, its size, how the bytes are packed, and at its begin the names of files that log rotation has made
of it; then the bytes, those of its end as they are: a log takes an eighth of the time on a slow link. With a pattern:
the offsets of its last matches in the range, the first one of each line, and how long the range is. `dd` seeks, as the
`tail` of busybox reads what it skips; `awk` searches, as its `grep` knows no offsets.
"""


class FileRange(NamedTuple):
    """What was read."""

    file: str
    """What identifies the file on its host; empty if the host cannot tell."""
    size: int
    """Of the whole file, in bytes."""
    start: int
    data: bytes
    """The bytes, or offsets of matches from `start` on, one a line."""
    older: tuple[str, ...] = ()
    """The names of the files with its older lines, the newest first. Known where `start` is 0."""


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
    _, began, answered = answer.stdout.partition(BEGIN)
    head, _, data = answered.partition(b"\n")
    file, size, gzip, older = head.decode("utf-8", "replace").split("|", 3) if began else ("", "0", "", "")
    data = zlib.decompressobj(GZIP).decompress(data) if gzip else data
    begin, count = start if start >= 0 else max(0, int(size) + start), len(data)
    if pattern:
        data, _, last = data.rstrip().rpartition(b"\n")
        count = int(last or 0)
    if answer.status != 0 or not began or count < min(length, int(size) - begin):
        last_words = answer.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2].rpartition(": ")[2]
        status = f"the shell on the host ended with status {answer.status}"
        raise CommandFailed(f"{clean(path)}: {clean(last_words, 300) or status}")
    return FileRange(file, int(size), begin, data, tuple(clean(name) for name in older.split("/") if name))
