#!/usr/bin/env -S python3 -I -S
"""trainmon-run: run a command as if it were not there, and keep a receipt of how the command began and ended.

One file, Python 3.6 or later, nothing but the standard library. It imports as little as it can: `json` and `re` alone
take longer than all that it does. The command inherits the descriptors 0, 1 and 2, so that it goes on when this program
is killed.

A *companion*, a second process in the same process group, does what may hang: it writes the receipt. It also answers
the question to whom a signal was sent. The companion blocks all signals. If one is pending there as well, the whole
group was told, and with it the command; if not, only this program was told, and the command is told in turn.
"""

import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

signal = __import__("_signal")  # the module `signal` without enum, whose import takes 5 ms

WRITE_WITHIN = 2.0
"""Seconds. A receipt that is not written by then is given up; the command does not wait for a filesystem that hangs."""

GROUP_TOLD_WITHIN = 0.01
"""Seconds after which a signal that is not pending at the companion was sent to this program alone."""

STEP_TOLD_WITHIN = 0.05
"""The same for a signal from slurmstepd, which tells one process after the other."""

TAIL = 65536
"""Bytes of the end of the output that are kept."""

NEVER = {signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP}
"""Signals that cannot be blocked, or tell of a fault of this program itself."""
STOPS = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
PASSED_ON = {number for number in range(1, signal.NSIG) if number not in NEVER and number not in (32, 33)} - {
    signal.SIGCHLD,
    signal.SIGTTIN,
    signal.SIGTTOU,
    signal.SIGPIPE,
}
"""32 and 33 belong to the C library."""


EXTRAS = None  # type: str | None
"""The source of run_extras.py, where this file is alone."""


def extras() -> "dict[str, Any]":
    """The parts that few starts need: to compile them takes as long as all else."""
    text, names = EXTRAS, {}  # type: str | None, dict[str, Any]
    if text is None:
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "run_extras.py"), encoding="utf-8") as file:
            text = file.read()
    exec(compile(text, "run_extras.py", "exec"), names)
    return names


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
            self.budget = extras()["bytes_of"](value)
        elif name == "forward" and value not in ("auto", "always", "never"):
            raise Usage("--forward is auto, always or never, not %s" % value)
        else:
            setattr(self, name, value)


# ---- the receipt -----------------------------------------------------------------------------------------------------


def json_text(value: object) -> str:
    """The value as JSON. The standard library's own module takes 6 ms to import."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, dict):
        return "{%s}" % ", ".join("%s: %s" % (json_text(name), json_text(one)) for name, one in value.items())
    if isinstance(value, (list, tuple)):
        return "[%s]" % ", ".join(map(json_text, value))
    plain = str(value).encode("utf-8", "replace").decode("utf-8").replace("\\", "\\\\").replace('"', '\\"')
    return '"%s"' % "".join(one if one >= " " else "\\u%04x" % ord(one) for one in plain)


SECRETS = {"key", "token", "secret", "password", "passwd", "passphrase", "apikey", "credential", "credentials", "pat"}
MARKED = ("sk-", "hf_", "ghp_", "gho_", "github_pat_", "glpat-", "xox", "nvapi-", "AKIA", "eyJ")
"""How the secrets of well-known services begin."""


def masked(argv: "list[str]") -> "list[str]":
    """The command line without its secrets. trainmon-tui masks it again, by more rules, before it shows it."""
    found, is_next = [], False
    for word in argv:
        found.append("***" if is_next and not word.startswith("-") else " ".join(map(_masked, word.split(" "))))
        name = word.lower().lstrip("-").replace("-", "_")
        is_next = word.startswith("-") and "=" not in word and name.split("_")[-1] in SECRETS
    return found


def _masked(word: str) -> str:
    name, equals, value = word.partition("=")
    if equals and name.lower().lstrip("-").replace("-", "_").split("_")[-1] in SECRETS:
        return name + "=***"
    if value.startswith(MARKED) or name.startswith(MARKED):
        return name + "=***" if equals and not name.startswith(MARKED) else "***"
    scheme, slashes, rest = word.partition("://")
    if slashes and "@" in rest.split("/")[0]:
        return scheme + "://***@" + rest.partition("@")[2]
    return word


def commit_of(folder: str) -> "str | None":
    """The git commit of the work tree that holds the folder; read from its files, without starting git."""
    try:
        while not os.path.exists(os.path.join(folder, ".git")):
            if folder in ("/", ""):
                return None
            folder = os.path.dirname(folder)
        git = os.path.join(folder, ".git")
        if os.path.isfile(git):  # a linked work tree
            git = os.path.join(folder, _first_line(git)[len("gitdir: ") :])
        head = _first_line(os.path.join(git, "HEAD"))
        if not head.startswith("ref: "):
            return head
        common = os.path.join(git, "commondir")
        shared = os.path.join(git, _first_line(common)) if os.path.exists(common) else git
        for base in (git, shared):
            if os.path.exists(os.path.join(base, head[5:])):
                return _first_line(os.path.join(base, head[5:]))
        with open(os.path.join(shared, "packed-refs"), encoding="utf-8") as packed:
            return next((line.split()[0] for line in packed if line.rstrip("\n").endswith(" " + head[5:])), None)
    except (OSError, ValueError, IndexError):
        return None


def _first_line(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.readline().strip()


SLURM = (
    "CLUSTER_NAME JOB_ID JOB_NAME ARRAY_JOB_ID ARRAY_TASK_ID RESTART_COUNT STEP_ID PROCID NODEID JOB_NODELIST JOB_GPUS "
    "JOB_END_TIME"
)


def described(fd: int) -> "dict[str, object] | None":
    """What a descriptor is: its path, device and inode, and its size, where the output of the command begins."""
    try:
        found, path = os.fstat(fd), os.readlink("/proc/self/fd/%d" % fd)
    except OSError:
        return None
    kind = {0o10: "file", 0o01: "pipe", 0o02: "terminal", 0o14: "socket"}.get(found.st_mode >> 12, "other")
    if kind == "terminal" and not os.isatty(fd):
        kind = "other"
    return {
        "kind": kind, "path": path, "device": found.st_dev, "inode": found.st_ino,
        "offset": found.st_size if kind == "file" else None,
    }  # fmt: skip


def pid_namespace() -> "str | None":
    """In which namespace the pids count: elsewhere they name other processes."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


def here() -> str:
    """The working directory."""
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return os.environ.get("PWD", "")


def started(options: Options) -> "dict[str, object]":
    """What is known before the start. Nothing of it touches a filesystem that may hang."""
    prefix, named = "SLURM_", os.environ.get
    return {
        "v": 1,
        "run": options.run,
        "argv": masked(options.command),
        "cwd": here(),
        "host": os.uname().nodename,
        "pid": os.getpid(),
        "pid_namespace": pid_namespace(),
        "started_at": time.time(),
        "slurm": {name.lower(): named(prefix + name) for name in SLURM.split() if named(prefix + name) is not None},
        "data_manifest": named("TRAINMON_DATA_MANIFEST"),
        "stdout": described(1),
        "stderr": described(2),
        "log": None if options.log is None else os.path.join(here(), options.log),
    }


def receipts_directory(options: Options) -> str:
    """Where the receipts of all commands are kept."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    default = os.path.join(state, "trainmon-tui", "receipts")
    return options.receipts or os.environ.get("TRAINMON_RECEIPTS") or default


def write(folder: str, name: str, text: str) -> None:
    """Write a file of the receipt so that it is there in full or not at all, also after a crash.

    Raises:
        OSError: when it cannot be written.
    """
    path = os.path.join(folder, name)
    fd = os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        data = (text + "\n").encode("utf-8", "replace")
        while data:
            data = data[os.write(fd, data) :]
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(path + ".tmp", path)
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# ---- the companion ---------------------------------------------------------------------------------------------------


class Companion:
    """The second process. It has no file of the command open, and ends when this program ends."""

    def __init__(self, folder: str, options: Options) -> None:
        self.folder = folder
        facts = started(options)
        requests, answers = os.pipe(), os.pipe()
        self._requests, self._answers = requests[1], answers[0]
        self.pid = os.fork()
        if self.pid == 0:
            try:
                nowhere = os.open(os.devnull, os.O_RDWR)
                for fd in (0, 1, 2):
                    os.dup2(nowhere, fd)
                keep_open(0, 1, 2, requests[0], answers[1])
                self._serve(requests[0], answers[1], facts, options)
            finally:
                os._exit(0)
        os.close(requests[0])
        os.close(answers[1])

    def ask(self, request: str, within: float = WRITE_WITHIN) -> "str | None":
        """Have it do something, and wait for that: `start`, `forget 15`, or an object in JSON, the facts of the end.
        Returns why it failed, or None."""
        try:
            os.write(self._requests, (request + "\n").encode("utf-8", "replace"))
            if select.select([self._answers], [], [], within)[0]:
                return os.read(self._answers, 4096).decode("utf-8", "replace").strip("\n") or None
        except OSError as error:
            return str(error)
        return "the filesystem of %s does not answer" % self.folder

    def keep_pid(self, pid: int) -> None:
        """Have it keep the pid of the command with the receipt: the command may outlive this program."""
        try:
            os.write(self._requests, b"command %d\n" % pid)
        except OSError:
            pass  # the end of the receipt will say why

    def was_told(self, number: int, within: float) -> bool:
        """Whether a signal reaches it, too, within these seconds. If so, it forgets the signal."""
        until = time.monotonic() + within
        while not pending(self.pid) >> (number - 1) & 1:
            if time.monotonic() >= until:
                return False
            time.sleep(0.001)
        self.ask("forget %d" % number)
        return True

    def _serve(self, requests: int, answers: int, facts: "dict[str, object]", options: Options) -> None:
        os.umask(0o077)
        data = b""
        while True:
            more = os.read(requests, 65536)
            if not more:
                return
            data += more
            while b"\n" in data:
                line, _, data = data.partition(b"\n")
                try:
                    artifacts = self._do(line.decode("utf-8", "replace"), facts, options)
                    if not line.startswith(b"command "):
                        os.write(answers, b"\n")
                except OSError as error:
                    if not line.startswith(b"command "):
                        os.write(answers, ("%s\n" % error).encode("utf-8", "replace"))
                    continue
                if artifacts is not None and options.notify is not None:
                    rare, name = extras(), options.run or options.command[0]
                    how = rare["ending"](line.decode("utf-8", "replace"), facts)
                    message = " ".join(filter(None, ("%s %s." % (name, how), artifacts)))
                    rare["notify"](options.notify, self.folder, message, keep_open)

    def _do(self, request: str, facts: "dict[str, object]", options: Options) -> "str | None":
        if request.startswith("forget "):
            signal.sigtimedwait({int(request[7:])}, 0)  # others may be pending: CONT and TERM come together
        elif request.startswith("command "):
            with open(os.path.join(self.folder, "command.json"), "w", encoding="ascii") as file:
                file.write('{"v": 1, "pid": %s}\n' % request[8:])
        elif request == "start":
            os.makedirs(self.folder, 0o700, exist_ok=True)
            facts["git_commit"] = commit_of(str(facts["cwd"]))
            write(self.folder, "start.json", json_text(facts))
        else:
            artifacts = attached(self.folder, options)
            try:
                output = ended_output(self.folder, facts)
            except OSError as error:  # its file was removed, or is not for us to read
                output = {"error": str(error)}
            more = {"output": output, "artifacts": artifacts}
            write(self.folder, "end.json", request[:-1] + ", " + json_text(more)[1:])
            return str(artifacts["message"])
        return None


def attached(folder: str, options: Options) -> "dict[str, object]":
    """The files that are kept with the receipt, and those that are left out."""
    if not options.attach:
        return {"message": "", "kept": [], "left_out": []}
    return dict(extras()["attached"](folder, options.attach, options.budget))


def sha256(data: bytes) -> str:
    """The digest; hashlib takes 4 ms to import."""
    for name in ("_sha256", "_sha2"):
        try:
            return str(__import__(name).sha256(data).hexdigest())
        except ImportError:
            pass  # another Python has it elsewhere
    return str(__import__("hashlib").sha256(data).hexdigest())


def keep_open(*descriptors: int) -> None:
    """Close all others."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in descriptors:
            try:
                os.close(int(name))
            except OSError:
                pass  # the one that listed them


def pending(pid: int) -> int:
    """The signals that are pending at a process, as a mask."""
    try:
        with open("/proc/%d/status" % pid, encoding="ascii", errors="replace") as status:
            return next((int(line.split()[1], 16) for line in status if line.startswith("ShdPnd:")), 0)
    except OSError:
        return 0


def ended_output(folder: str, facts: "dict[str, object]") -> "dict[str, object] | None":
    """Where the output ended: its file, its size, and a copy of its last part. None if it was no file."""
    known = facts["stdout"] if facts["log"] is None else {"path": facts["log"], "offset": 0, "kind": "file"}
    if not isinstance(known, dict) or known["kind"] != "file":
        return None
    with open(str(known["path"]), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        begin = known["offset"] if isinstance(known["offset"], int) and known["offset"] <= size else 0
        file.seek(max(begin, size - TAIL))
        tail = file.read(TAIL)
    place = os.path.join(folder, "tail.log")
    with open(place, "wb") as copy:
        copy.write(tail)
    return {"path": known["path"], "offset": size, "tail": place, "tail_bytes": len(tail), "tail_sha256": sha256(tail)}


# ---- the command -----------------------------------------------------------------------------------------------------


def start(options: Options, mask: "set[int]", copier: "Any") -> int:
    """Start the command; returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        for fd, (_, theirs) in (copier.ends if copier is not None else {}).items():
            os.dup2(theirs, fd)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        try:
            os.execvp(options.command[0], options.command)
        except OSError as error:
            if error.errno == 8:  # ENOEXEC: a script without a first line
                os.execv("/bin/sh", ["sh", *options.command])
            say("%s: %s" % (options.command[0], error.strerror))
            os._exit(127 if error.errno in (2, 20) else 126)
    finally:
        os._exit(126)


def follow(pid: int, forward: str, companion: "Companion | None") -> "tuple[int, Any]":
    """Pass signals on until the command has ended. Returns its wait status and its resource usage."""
    while True:
        info = signal.sigwaitinfo(PASSED_ON | {signal.SIGCHLD})
        if info.si_signo != signal.SIGCHLD:
            if not is_told(info, forward, companion):
                os.kill(pid, info.si_signo)
            continue
        found, status, usage = os.wait4(pid, os.WNOHANG | os.WUNTRACED)
        if found == pid and os.WIFSTOPPED(status):
            stop(os.WSTOPSIG(status), companion)
        elif found == pid:
            return status, usage


def is_told(info: "Any", forward: str, companion: "Companion | None") -> bool:
    """Whether the command has this signal already: the kernel (a terminal) tells the whole group, and so do a shell
    with job control and slurmstepd, except for its signals to the batch script alone."""
    within = STEP_TOLD_WITHIN if is_slurm(info.si_pid) else GROUP_TOLD_WITHIN
    told = companion is not None and companion.was_told(info.si_signo, within)
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


def stop(number: int, companion: "Companion | None") -> None:
    """Stop as the command has stopped, until somebody continues both."""
    if number != signal.SIGSTOP:
        if signal.sigtimedwait({number}, GROUP_TOLD_WITHIN) is not None and companion is not None:
            companion.was_told(number, GROUP_TOLD_WITHIN)  # the whole group was told: it must not stop us twice
        signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    if number in PASSED_ON:
        signal.pthread_sigmask(signal.SIG_BLOCK, {number})


def end(status: int) -> None:
    """End as the command has ended."""
    if not os.WIFSIGNALED(status):
        os._exit(os.WEXITSTATUS(status))
    import resource

    number = os.WTERMSIG(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # its core file is enough
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    os._exit(128 + number)


def say(text: str) -> None:
    try:
        os.write(2, ("trainmon-run: %s\n" % text).encode("utf-8", "replace"))
    except OSError:
        pass  # there is nobody to hear it


def facts_of_end(pid: int, status: int, usage: "Any") -> str:
    """What is known of the end, in JSON."""
    by_signal = os.WIFSIGNALED(status)
    return json_text(
        {
            "v": 1,
            "ended_at": time.time(),
            "pid": pid,
            "status": None if by_signal else os.WEXITSTATUS(status),
            "signal": os.WTERMSIG(status) if by_signal else None,
            "core": by_signal and os.WCOREDUMP(status),
            "user_s": usage.ru_utime,
            "system_s": usage.ru_stime,
            "max_rss_bytes": usage.ru_maxrss * 1024,
        }
    )


def main(argv: "list[str]") -> None:
    try:
        options = Options(argv)
        if options.help:
            os.write(1, extras()["USAGE"].encode())
            return
    except (Usage, ValueError) as error:
        say("%s; --help tells more" % error)
        sys.exit(2)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON | {signal.SIGCHLD})
    name = "%s-%s-%d" % (os.uname().nodename, time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()), os.getpid())
    companion = copier = None
    try:
        companion = Companion(os.path.join(receipts_directory(options), name), options)
        why = companion.ask("start")
    except OSError as error:
        why = str(error)
    if why is not None:
        say("no receipt can be written: %s" % why)
    try:
        copier = extras()["Copier"](options.log, keep_open) if options.log is not None else None
    except OSError as error:
        say("no copy of the output is written: %s" % error)
    pid = start(options, mask, copier)
    if companion is not None and why is None:
        companion.keep_pid(pid)
    let_go(copier)
    status, usage = follow(pid, options.forward, companion)
    if copier is not None:
        copier.drain()
    if companion is not None and why is None:
        why = companion.ask(facts_of_end(pid, status, usage))
        if why is not None:
            say("the end of the receipt cannot be written: %s" % why)
    end(status)


def let_go(copier: "Any") -> None:
    """Close what only the command is to have open: whoever reads its output sees its end."""
    for theirs in {theirs for _, theirs in (copier.ends if copier is not None else {}).values()}:
        os.close(theirs)
    for fd in (0, 1, 2):
        known = described(fd)
        if known is not None and known["kind"] in ("pipe", "socket"):
            os.dup2(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC), fd)


if __name__ == "__main__":
    main(sys.argv[1:])
