"""Where the code of ranks stands: by the py-spy of their own environment, or by a signal to trainmon_hooks.

Of a stack, names of files and functions leave the node, and line numbers; never an argument or the value of a variable.
An environment and a command line are read to find py-spy, and stay here.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PATIENCE, ANSWER, LATEST = 10.0, 3.0, 50.0
"""Seconds: so long a py-spy may take, and an answer to a signal; and after the last, no other process is asked."""
AT_ONCE = 8
FRAMES, NAME = 100, 200
"""Of a stack, the innermost ones, as faulthandler has them; and characters of a name."""
TICKS = os.sysconf("SC_CLK_TCK")

MARK = "trainmon-stacks"
"""What the name of a file begins with that trainmon_hooks holds open. Its first line: the mark, the number of the
signal, and the pid as the process itself has it."""
MOST = 1 << 20
"""Characters of an answer."""

FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.M)


def look(asked: "Any") -> "Any":
    """`asked`: the seconds before each sample; of each rank its number, pid, start in seconds after the boot, and how
    it is to be asked. The answer: its number, how it can be asked, or else why it cannot, and its stacks."""
    pauses, ranks = asked
    end = time.monotonic() + LATEST
    rows = [[rank, *way(pid, started), []] for rank, pid, started, _ in ranks]  # type: list[list[Any]]

    def add(row: "list[Any]", one: "list[Any]") -> None:
        """One more stack of a rank. If there is none, it is not asked again."""
        _, pid, started, planned = one
        try:
            if row[1] == planned != "" and time.monotonic() < end:
                row[3].append(WAYS[planned][1](pid, started))
        except (OSError, ValueError, LookupError, TypeError) as error:
            row[1:3] = "", ("%s: %s" % (planned, error))[:NAME]

    with ThreadPoolExecutor(AT_ONCE) as threads:
        for pause in pauses:
            time.sleep(pause)
            list(threads.map(add, rows, ranks))
    return rows


def way(pid: int, started: float) -> "tuple[str, str]":
    """How a rank can be asked; or nothing, and why it cannot."""
    why = []
    for name, (find, _) in WAYS.items():
        try:
            find(pid, status(pid, started))
        except (OSError, ValueError) as error:
            why.append(str(getattr(error, "strerror", None) or error)[:NAME])
        else:
            return name, ""
    return "", ", and ".join(dict.fromkeys(why))


def state(pid: int, started: float) -> str:
    """The state of a process.

    Raises:
        ValueError: when it has ended, and perhaps another one has its pid.
    """
    with open("/proc/%d/stat" % pid) as file:
        fields = file.read().rpartition(")")[2].split()
    if int(fields[19]) != round(started * TICKS) or fields[0] in "ZX":
        raise ValueError("it has ended")
    return fields[0]


def status(pid: int, started: float) -> "dict[str, str]":
    """What /proc says of a process that may be asked.

    Raises:
        ValueError: when it is not the same one any more, or is stopped or blocked.
    """
    now = state(pid, started)
    if now in "TtD":
        raise ValueError("it is in state %s" % now)
    with open("/proc/%d/status" % pid, errors="replace") as file:
        return dict(line.strip().partition(":")[::2] for line in file)


# ---- py-spy ----------------------------------------------------------------------------------------------------------


def py_spy(pid: int, known: "dict[str, str]") -> str:
    """The program in the environment of the process. One of another user is not run, nor one of a container.

    Raises:
        ValueError: when there is none, or it could not read the process.
    """
    folder = "/proc/%d/" % pid
    if int(known["Uid"].split()[1]) != os.geteuid() or not os.path.samefile(folder + "root", "/"):
        raise ValueError("it is of another user, or in a container")
    try:
        with open(folder + "syscall") as file:
            file.read()
    except PermissionError as error:
        raise ValueError("it may not be traced (ptrace)") from error
    with open(folder + "environ", "rb") as environ, open(folder + "cmdline", "rb") as words:
        path = re.search(rb"(?:^|\0)PATH=([^\0]*)", environ.read(8 << 20))
        command = os.fsdecode(words.read(4096).partition(b"\0")[0])
    places = [os.path.dirname(os.readlink(folder + "exe")), os.path.dirname(command)]
    places += os.fsdecode(path.group(1)).split(":") if path else []
    program = shutil.which("py-spy", path=":".join(place for place in places if place.startswith("/")))
    if program is None:
        raise ValueError("its environment has no py-spy")
    return program


def dumped(pid: int, started: float) -> "list[Any]":
    """Its stack by py-spy, which does not stop it. If it is stopped after py-spy has failed, it is continued: it was
    not stopped before."""
    program = py_spy(pid, status(pid, started))
    argv = [program, "dump", "--nonblocking", "--json", "--pid", str(pid)]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}  # type: dict[str, Any]
    try:
        done = subprocess.run(argv, timeout=PATIENCE, check=True, cwd="/", **pipes)
    except subprocess.SubprocessError as error:
        said = error.stderr if isinstance(error, subprocess.CalledProcessError) else b"it did not end in %ds" % PATIENCE
        for _ in range(10):  # on a busy node, a process stops some time after it was told to
            time.sleep(ANSWER / 10)
            if state(pid, started) == "T":
                os.kill(pid, signal.SIGCONT)
                break  # who stops it from now on is not py-spy
        raise ValueError(said.decode("utf-8", "replace").strip().rpartition("\n")[2].replace("Error: ", "")) from error
    threads = json.loads(done.stdout.decode("utf-8", "replace"))
    main = [one for one in threads if one.get("os_thread_id") == pid] or threads
    return [frame(one["filename"], one["line"], one["name"]) for one in main[0]["frames"][:FRAMES][::-1]]


def frame(file: str, line: str, function: str) -> "tuple[str, int, str]":
    return file[-NAME:], int(line), function[:NAME]


# ---- trainmon_hooks --------------------------------------------------------------------------------------------------


def hook(pid: int, known: "dict[str, str]") -> "tuple[int, str]":
    """The signal on which trainmon_hooks writes the stack of the main thread, and the file.

    Raises:
        ValueError: when the process has not announced it, or does not catch it: then it could end the process.
    """
    folder, own = "/proc/%d/fd/" % pid, known.get("NSpid", str(pid)).split()[-1]
    caught = int(known["SigCgt"], 16) & ~int(known["SigBlk"], 16)
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):  # a trainer opens and closes files
            if os.path.basename(os.readlink(folder + name)).startswith(MARK):
                with open(folder + name) as file:
                    found = re.match(r"%s (\d+) %s$" % (MARK, own), file.readline())
                if found and caught >> int(found.group(1)) - 1 & 1:
                    return int(found.group(1)), folder + name
    raise ValueError("no trainmon_hooks listens in it")


def signalled(pid: int, started: float) -> "list[Any]":
    """Its stack by the signal. Right before, the process is still the one that was meant, and listens."""
    number, path = hook(pid, status(pid, started))
    with open(path, "r+") as file:
        begin = file.truncate(len(file.readline()))
        os.kill(pid, number)
        end, before, size = time.monotonic() + ANSWER, begin, begin
        while time.monotonic() < end and (size == begin or size > before):
            time.sleep(0.1)
            before, size = size, os.fstat(file.fileno()).st_size
        file.seek(begin)
        frames = FRAME.findall(file.read(MOST).rpartition("Stack (most recent call first)")[2])
    if not frames:
        raise ValueError("no answer")
    return [frame(*one) for one in frames[:FRAMES][::-1]]


WAYS = {"py-spy": (py_spy, dumped), "signal": (hook, signalled)}  # type: dict[str, Any]
