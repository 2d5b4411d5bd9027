"""The parts of trainmon-run that few starts need, compiled only then: help, sizes, attached files, --notify, --log."""

import os
import select
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

USAGE = """\
usage: trainmon-run [OPTION]... -- COMMAND [ARGUMENT]...

Run COMMAND unchanged: same input, output, terminal, signals and exit status. Before and after,
write a receipt: start.json and end.json.

  --run NAME        the run to which this attempt belongs
  --log FILE        also copy all output to FILE; without it, COMMAND writes directly to its output. A separate
                    process copies the output and survives trainmon-run; if that process is killed, the output ends
  --receipts DIR    where receipts are kept: else $TRAINMON_RECEIPTS, else trainmon-tui/receipts in
                    $XDG_STATE_HOME (~/.local/state)
  --attach GLOB     keep these files with the receipt at the end; may be repeated
  --budget SIZE     of all attached files together, the smallest first (25MB)
  --notify COMMAND  start this shell command after the end, and do not wait for it. It gets the message on its standard
                    input, and the receipt's directory in $TRAINMON_RECEIPT
  --forward WHEN    auto: pass on a signal that only trainmon-run got; always; never
  -h, --help        show this

Exit status: that of COMMAND; if it died of a signal, trainmon-run dies of the same. 127: COMMAND was not found.
126: it cannot be executed. 2: the options are wrong.
"""


def bytes_of(text: str) -> int:
    """The bytes of a size such as 25MB, 512k or 3GiB.

    Raises:
        ValueError: when it is none.
    """
    number = text.rstrip("bBiI ").rstrip("kKmMgGtT ")
    unit = text[len(number) :].strip().lower()
    base = 1024 if "i" in unit else 1000
    powers = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3, "t": 4}
    try:
        size = int(float(number) * base ** powers[unit.rstrip("bi") if unit != "b" else ""])
    except (ValueError, KeyError, OverflowError):
        size = -1
    if size < 0:
        raise ValueError("--budget is a size such as 25MB, not %r" % text)
    return size


def attached(folder: str, patterns: "list[str]", budget: int) -> "dict[str, Any]":
    """Keep the attached files with the receipt: the smallest first, as far as the budget reaches."""
    import glob
    import shutil

    found = {path for pattern in patterns for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)}
    sizes = sorted((os.path.getsize(path), path) for path in found if os.path.exists(path))
    kept, left_out, room = [], [], budget  # type: list[dict[str, Any]], list[dict[str, Any]], int
    for size, path in sizes:
        place = os.path.join(folder, "artifacts", "%d-%s" % (len(kept), os.path.basename(path)))
        one = {"path": path, "bytes": size}  # type: dict[str, Any]
        try:
            if size <= room:
                os.makedirs(os.path.dirname(place), exist_ok=True)
                shutil.copyfile(path, place)
                kept.append(dict(one, kept=place))
                room -= size
                continue
        except OSError as error:  # it cannot be read, or the disk of the receipts is full
            one["error"] = error.strerror
            if os.path.exists(place):
                os.unlink(place)
        left_out.append(one)
    message = "%d of %d files kept" % (len(kept), len(sizes))
    names = ["%s (%s)" % (one["path"], one.get("error") or "%d bytes" % one["bytes"]) for one in left_out]
    if names:
        message += "; left out: " + ", ".join(names)
    return {"message": message, "kept": kept, "left_out": left_out}


def notify(command: str, folder: str, message: str, keep_open: "Callable[..., None]") -> None:
    """Become a shell command that nobody waits for; a minute later it is ended."""
    os.setsid()
    source, sink = os.pipe()
    os.write(sink, (message + "\n").encode("utf-8", "replace"))
    os.dup2(source, 0)
    keep_open(0, 1, 2)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.alarm(60)
    os.execve("/bin/sh", ["sh", "-c", command], dict(os.environ, TRAINMON_RECEIPT=folder))


def whole(fd: int, data: bytes) -> None:
    """Write all of it."""
    while data:
        data = data[os.write(fd, data) :]


AT_ONCE = 1 << 16
"""Bytes that are copied at once, as many as a pipe holds. With pipes of 1 MiB, text lines took 1.4 times as long: the
data no longer fit the processor's cache."""


class Copier:
    """The process that copies the output to a log, byte for byte. It ends when nobody has the output open any more."""

    def __init__(self, path: str, keep_open: "Callable[..., None]") -> None:
        """Raises OSError when the log cannot be written."""
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        self.ends = {1: self._pair(1)}
        self.ends[2] = self.ends[1] if os.isatty(1) and os.isatty(2) else self._pair(2)
        self._end, end = os.pipe()[::-1]
        answers, self._drained = os.pipe()[::-1]
        if os.fork() == 0:
            try:
                sources = {ours: fd for fd, (ours, _) in self.ends.items()}
                keep_open(1, 2, log, end, answers, *sources)
                self._follow_window(sources)
                self._copy(sources, log, end, answers)
            finally:
                os._exit(0)
        for fd in {log, end, answers, *(ours for ours, _ in self.ends.values())}:
            os.close(fd)

    @staticmethod
    def _pair(fd: int) -> "tuple[int, int]":
        """What the copier reads, and what the command writes: a terminal if it had one."""
        if not os.isatty(fd):
            return os.pipe()
        import fcntl
        import termios
        import tty

        ours, theirs = os.openpty()
        tty.setraw(theirs)  # the real terminal does what is to be done to the bytes
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, fcntl.ioctl(fd, termios.TIOCGWINSZ, bytes(8)))
        return ours, theirs

    def drain(self) -> None:
        """Wait until all that the command has written is copied. What its children write later is copied, too."""
        os.close(self._end)
        select.select([self._drained], [], [], 60.0)

    @staticmethod
    def _follow_window(sources: "dict[int, int]") -> None:
        """Have the command's terminal be as large as the real one when its window changes.

        The command is told at the same time as this process, maybe too early: so all are told again.
        """
        import fcntl
        import termios

        def follow(*_: "Any") -> None:
            for ours, fd in sources.items():
                if os.isatty(fd):
                    size = fcntl.ioctl(fd, termios.TIOCGWINSZ, bytes(8))
                    if size != fcntl.ioctl(ours, termios.TIOCGWINSZ, bytes(8)):
                        fcntl.ioctl(ours, termios.TIOCSWINSZ, size)
                        os.kill(0, signal.SIGWINCH)

        if any(os.isatty(fd) for fd in sources.values()):
            signal.signal(signal.SIGWINCH, follow)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGWINCH})

    @staticmethod
    def _copy(sources: "dict[int, int]", log: int, end: int, answers: int) -> None:
        poll, answer = select.poll(), answers  # type: ignore[attr-defined, unused-ignore]
        for fd in (*sources, end):
            poll.register(fd, select.POLLIN)
        is_over, is_logged = False, True
        while sources:
            ready = [fd for fd, _ in poll.poll(0 if is_over else None)]
            if is_over and not ready:
                os.close(answer)
                is_over = False
                continue
            if end in ready:
                poll.unregister(end)
                is_over = True
            for fd in set(ready) & set(sources):
                try:
                    data = os.read(fd, AT_ONCE)
                    whole(sources[fd], data)
                except OSError:  # a terminal without a command, or a reader that is gone: the command is to notice, too
                    data = b""
                try:
                    whole(log, data if is_logged else b"")
                except OSError as error:  # a full disk ends the copy, not the command
                    is_logged = False
                    os.write(2, ("trainmon-run: the copy of the output ends: %s\n" % error).encode("utf-8", "replace"))
                if not data:
                    poll.unregister(fd)
                    os.close(fd)
                    del sources[fd]
