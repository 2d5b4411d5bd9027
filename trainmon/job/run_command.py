"""The part of trainmon-run that follows the command: its signals and its end. See trainmon_run.py."""

import posix
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

signal = __import__("_signal")

GROUP_TOLD_WITHIN = 0.01
"""Seconds after which a signal that is not pending at the companion was sent to this program alone."""

STEP_TOLD_WITHIN = 0.05
"""The same for a signal from slurmstepd, which tells one process after the other."""


def follow(pid: int, forward: str, companion: "Any", passed_on: "set[int]") -> "tuple[int, Any]":
    """Pass signals on until the command has ended. Returns its wait status and its resource usage."""
    while True:
        info = signal.sigwaitinfo(passed_on | {signal.SIGCHLD})
        if info.si_signo != signal.SIGCHLD:
            told = is_told(info, forward, companion)
            # A continue takes a stop back. The companion does not show it any more.
            is_taken_back = info.si_signo == signal.SIGTSTP and signal.SIGCONT in signal.sigpending()
            if not told and not is_taken_back:
                posix.kill(pid, info.si_signo)
            continue
        found, status, usage = posix.wait4(pid, posix.WNOHANG | posix.WUNTRACED)
        if found == pid and posix.WIFSTOPPED(status):
            stop(posix.WSTOPSIG(status), companion, passed_on)
        elif found == pid:
            return status, usage


def is_told(info: "Any", forward: str, companion: "Any") -> bool:
    """Whether the command has this signal already: the kernel (a terminal) tells the whole group, and so do a shell
    with job control and slurmstepd, except for its signals to the batch script alone."""
    within = STEP_TOLD_WITHIN if is_slurm(info.si_pid) else GROUP_TOLD_WITHIN
    told = companion is not None and was_told(companion, info.si_signo, within)
    if forward != "auto":
        return forward == "never"
    return told or info.si_code > 0


def is_slurm(pid: int) -> bool:
    """Whether the sender is slurmstepd, or cannot be seen, as in another PID namespace."""
    try:
        with open("/proc/%d/comm" % pid, encoding="utf-8", errors="replace") as comm:
            return comm.read().startswith("slurmstepd")
    except OSError:
        return True


def forked(
    argv: "list[str]", mask: "set[int]", default: "tuple[int, ...]", copier: "Any", say: "Callable[[str], None]"
) -> int:
    """Start the command where posix_spawn is not there or has failed; returns its pid."""
    pid = posix.fork()
    if pid:
        return pid
    try:
        for fd, (_, theirs) in (copier.ends if copier is not None else {}).items():
            posix.dup2(theirs, fd)
        for number in default:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        try:
            __import__("os").execvp(argv[0], argv)
        except OSError as error:
            if error.errno == 8:  # ENOEXEC: a script without a first line
                posix.execv("/bin/sh", ["sh", *argv])
            say("%s: %s" % (argv[0], error.strerror))
            posix._exit(127 if error.errno in (2, 20) else 126)
    finally:
        posix._exit(126)


def was_told(companion: "Any", number: int, within: float) -> bool:
    """Whether a signal reaches the companion, too, within these seconds. If so, it forgets the signal."""
    until = time.monotonic() + within
    while not pending(companion.pid) >> (number - 1) & 1:
        if time.monotonic() >= until:
            return False
        time.sleep(0.001)
    if number in companion.stuck:
        return False  # it is pending since earlier; a command that is told twice is better than one that is not told
    if companion.send("forget %d" % number) or companion.answer():
        companion.stuck.add(number)
    return True


def pending(pid: int) -> int:
    """The signals that are pending at a process, as a mask."""
    try:
        with open("/proc/%d/status" % pid, encoding="ascii", errors="replace") as status:
            return next((int(line.split()[1], 16) for line in status if line.startswith("ShdPnd:")), 0)
    except OSError:
        return 0


def stop(number: int, companion: "Any", passed_on: "set[int]") -> None:
    """Stop as the command has stopped, until somebody continues both."""
    within = GROUP_TOLD_WITHIN
    if number != signal.SIGSTOP and signal.sigtimedwait({number}, within) is not None and companion is not None:
        was_told(companion, number, within)  # the whole group was told: it must not stop us twice
    if signal.SIGCONT in signal.sigpending():
        return  # to stop would take it back, and nobody would send another
    if number != signal.SIGSTOP:
        signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    posix.kill(posix.getpid(), number)
    if number in passed_on:
        signal.pthread_sigmask(signal.SIG_BLOCK, {number})


def end(status: int) -> None:
    """End as the command has ended."""
    if not posix.WIFSIGNALED(status):
        posix._exit(posix.WEXITSTATUS(status))
    import resource

    number = posix.WTERMSIG(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # its core file is enough
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    posix.kill(posix.getpid(), number)
    posix._exit(128 + number)
