#!/usr/bin/env -S python3 -I -S
"""trainmon-run: run a command unchanged, and keep a receipt of how it began and ended.

One file, Python 3.6 or later, nothing but the standard library. It imports as little as it can: `json` and `re` alone
take longer than all that it does, and `os` takes 1 ms more than `posix`. Each process loads only the parts that it
needs. The command inherits the descriptors 0, 1 and 2, so that it goes on when this program is killed.

A *companion*, a second process in the same process group, does what may hang: it writes the receipt. It also answers
the question to whom a signal was sent. The companion blocks all signals. If one is pending there as well, the whole
group was told, and with it the command; if not, only this program was told, and the command is told in turn.
"""

import posix
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

signal = __import__("_signal")  # the module `signal` without enum, whose import takes 5 ms

WRITE_WITHIN = 2.0
"""Seconds. A receipt that is not written by then is given up; the command does not wait for a filesystem that hangs."""

ATTACH_WITHIN = 60.0
"""The same for the attached files, which are kept when the end is already written. A signal ends this wait."""

NEVER = {signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP}
"""Signals that cannot be blocked, or tell of a fault of this program itself."""
OTHERS = {32, 33, signal.SIGCHLD, signal.SIGTTIN, signal.SIGTTOU, signal.SIGPIPE}
"""Signals that are not passed on: 32 and 33 belong to the C library."""
PASSED_ON = set(range(1, signal.NSIG)) - NEVER - OTHERS

ASKED_TO_END = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM}

LOAD = globals().get("load")  # type: Any
"""Gives another part as source or as code, where this is one file: else the parts are files beside it."""


def part(name: str) -> "dict[str, Any]":
    """The names of another part, such as run_receipt."""
    names = {}  # type: dict[str, Any]
    if LOAD is not None:
        exec(LOAD(name), names)
    else:
        with open("%s/%s.py" % (__file__.rpartition("/")[0] or ".", name), encoding="utf-8") as file:
            exec(file.read(), names)
    return names


def keep_open(*descriptors: int) -> None:
    """Close all others."""
    for name in posix.listdir("/proc/self/fd"):
        if int(name) not in descriptors:
            try:
                posix.close(int(name))
            except OSError:
                pass  # the one that listed them


class Usage(Exception):
    """The options are wrong."""


class Options:
    """The command line."""

    def __init__(self, argv: "list[str]") -> None:
        self.run = self.log = self.receipts = self.notify = None  # type: str | None
        self.attach = []  # type: list[str]
        self.budget, self.forward, self.help = 25 * 10**6, "auto", False
        words = list(argv)
        while words and words[0].startswith("-"):
            name, equals, value = words.pop(0).partition("=")
            if name in ("--", "-h", "--help"):
                self.help = name != "--"
                break
            if name not in ("--run", "--log", "--receipts", "--notify", "--attach", "--budget", "--forward"):
                raise Usage("unknown option %s" % name)
            if not equals:
                if not words:
                    raise Usage("%s needs a value" % name)
                value = words.pop(0)
            self._set(name[2:], value)
        self.command = words
        if not words and not self.help:
            raise Usage("no command is given")

    def _set(self, name: str, value: str) -> None:
        if name == "attach":
            self.attach.append(value)
        elif name == "budget":
            self.budget = part("run_extras")["bytes_of"](value)
        elif name == "forward" and value not in ("auto", "always", "never"):
            raise Usage("--forward is auto, always or never, not %s" % value)
        else:
            setattr(self, name, value)


def receipts_directory(options: Options) -> str:
    """Where the receipts of all commands are kept."""
    found = options.receipts or named("TRAINMON_RECEIPTS")
    if found:
        return found
    home = named("HOME") or __import__("os").path.expanduser("~")
    return "%s/trainmon-tui/receipts" % (named("XDG_STATE_HOME") or home + "/.local/state")


def named(name: str) -> "str | None":
    """A variable of the environment."""
    found = posix.environ.get(name.encode())
    return None if found is None else found.decode("utf-8", "surrogateescape")


class Companion:
    """The second process. It has no file of the command open, and ends when this program ends."""

    def __init__(self, options: Options) -> None:
        """Start it, and have it write the start of the receipt."""
        began = time.time()
        name = "%s-%s-%d" % (
            posix.uname().nodename,
            time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(began)),
            posix.getpid(),
        )
        self.folder = "%s/%s" % (receipts_directory(options), name)
        self.stuck = set()  # type: set[int]
        """Signals that it could not be asked to forget, as it waits for a filesystem."""
        requests, answers = posix.pipe(), posix.pipe()
        self._requests, self._answers = requests[1], answers[0]
        self.pid = posix.fork()
        if self.pid == 0:
            try:
                part("run_receipt")["serve"](
                    requests[0], answers[1], self.folder, began, options, part, keep_open, named
                )
            finally:
                posix._exit(0)
        posix.close(requests[0])
        posix.close(answers[1])

    def send(self, request: str) -> "str | None":
        """Have it do something: `command PID`, `forget SIGNAL`, `end …` or `attach`. Returns why it failed, or None."""
        try:
            posix.write(self._requests, (request + "\n").encode("utf-8", "replace"))
        except OSError as error:
            return str(error)
        return None

    def answer(self, within: float = WRITE_WITHIN) -> "str | None":
        """Wait until it has done so; only `command` has no answer. Returns why it failed, or None."""
        until = time.monotonic() + within
        try:
            while not select.select([self._answers], [], [], 0.2)[0]:
                if time.monotonic() >= until:
                    return "the filesystem of %s does not answer" % self.folder
                if within > WRITE_WITHIN and signal.sigpending() & ASKED_TO_END:
                    return "a signal came first"
            answer = posix.read(self._answers, 4096) or b"its second process was killed"
            return answer.decode("utf-8", "replace").strip("\n") or None
        except OSError as error:
            return str(error)


def start(options: Options, mask: "set[int]", copier: "Any", rest: "dict[str, Any]") -> int:
    """Start the command; returns its pid."""
    default = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores them
    copied = {} if copier is None else copier.ends
    try:
        ends = [(posix.POSIX_SPAWN_DUP2, theirs, fd) for fd, (_, theirs) in copied.items()]
        return posix.posix_spawnp(
            options.command[0], options.command, posix.environ, file_actions=ends, setsigmask=mask, setsigdef=default
        )  # fmt: skip
    except (AttributeError, OSError):  # before Python 3.8; or it cannot be executed, and says so
        return int(rest["forked"](options.command, mask, default, copier, say))


def say(text: str) -> None:
    try:
        posix.write(2, ("trainmon-run: %s\n" % text).encode("utf-8", "replace"))
    except OSError:
        pass  # there is nobody to hear it


def let_go(copier: "Any") -> None:
    """Close what only the command is to have open: whoever reads its output sees its end."""
    for theirs in {theirs for _, theirs in (copier.ends if copier is not None else {}).values()}:
        posix.close(theirs)
    for fd in (0, 1, 2):
        try:
            if posix.fstat(fd).st_mode >> 12 in (0o01, 0o14):  # a pipe or a socket
                posix.dup2(posix.open("/dev/null", posix.O_RDWR | posix.O_CLOEXEC), fd)
        except OSError:
            pass  # it is not open


def main(argv: "list[str]") -> None:
    try:
        options = Options(argv)
        if options.help:
            posix.write(1, part("run_extras")["USAGE"].encode())
            return
    except (Usage, ValueError) as error:
        say("%s; see --help" % error)
        sys.exit(2)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON | {signal.SIGCHLD})
    companion = copier = why = None
    try:
        companion = Companion(options)
    except OSError as error:
        why = str(error)
    rest = part("run_command")
    if companion is not None:
        why = companion.answer()
    if why is not None:
        say("no receipt can be written: %s" % why)
    try:
        copier = part("run_extras")["Copier"](options.log, keep_open) if options.log is not None else None
    except OSError as error:
        say("no copy of the output is written: %s" % error)
    pid = start(options, mask, copier, rest)
    if companion is not None and why is None:
        companion.send("command %d" % pid)
    let_go(copier)
    status, usage = rest["follow"](pid, options.forward, companion, PASSED_ON)
    ended_at = time.time()
    if copier is not None:
        copier.drain()
    if companion is not None and why is None:
        facts = (status, ended_at, pid, usage.ru_utime, usage.ru_stime, usage.ru_maxrss)
        why = companion.send("end %d %r %d %r %r %d" % facts) or companion.answer()
        if why is not None:
            say("the end of the receipt cannot be written: %s" % why)
        elif options.attach:
            why = companion.send("attach") or companion.answer(ATTACH_WITHIN)
            if why is not None:
                say("the attached files are not all kept: %s" % why)
    rest["end"](status)


if __name__ == "__main__":
    main(sys.argv[1:])
