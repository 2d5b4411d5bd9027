"""The part of trainmon-run that its companion runs: it writes the receipt. See trainmon_run.py."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

signal = __import__("_signal")


def serve(
    requests: int,
    answers: int,
    folder: str,
    began: float,
    options: "Any",
    part: "Callable[[str], dict[str, Any]]",
    keep_open: "Callable[..., None]",
) -> None:
    """Write the start of the receipt, then do what is asked for until the other process has ended."""
    facts = started(began, options)  # before it lets the descriptors go
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nowhere, fd)
    keep_open(0, 1, 2, requests, answers)
    os.umask(0o077)
    data, finish = b"start\n", None  # type: bytes, Any
    while True:
        while b"\n" in data:
            line, _, data = data.partition(b"\n")
            request, _, rest = line.decode("ascii").partition(" ")
            why = done = ""
            try:
                if request == "forget":
                    signal.sigtimedwait({int(rest)}, 0)  # others may be pending: CONT and TERM come together
                elif request == "start":
                    begin(folder, facts, options)
                elif request == "command":
                    keep_pid(folder, rest)
                else:
                    done = finish(folder, facts, options, rest, part, json_text, write)
            except OSError as error:
                why = str(error)
            if request != "command":
                os.write(answers, (why + "\n").encode("utf-8", "replace"))
            if request == "end" and not why:
                sync(folder)
            if finish is None:  # while the command runs
                finish = part("run_end")["finish"]
            if done and options.notify is not None:
                part("run_extras")["notify"](options.notify, folder, done, keep_open)
        more = os.read(requests, 65536)
        if not more:
            return
        data += more


def begin(folder: str, facts: "dict[str, object]", options: "Any") -> None:
    """Write start.json."""
    os.makedirs(folder, 0o700, exist_ok=True)
    facts["git_commit"] = commit_of(str(facts["cwd"]))
    if facts["log"] is not None:
        facts["log_offset"] = os.path.getsize(str(facts["log"])) if os.path.exists(str(facts["log"])) else 0
    write(folder, "start.json", json_text(facts), is_awaited=True)


def keep_pid(folder: str, pid: str) -> None:
    """Keep the pid of the command: it may outlive this program."""
    with open(os.path.join(folder, "command.json"), "w", encoding="ascii") as file:
        file.write('{"v": 1, "pid": %s}\n' % pid)


def write(folder: str, name: str, text: str, is_awaited: bool = False) -> None:
    """Write a file of the receipt so that a reader sees all of it or nothing; if it is awaited, down to the disk. That
    may take as long as the disk needs for all that the command has written.

    Raises:
        OSError: when it cannot be written.
    """
    path = os.path.join(folder, name)
    fd = os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        data = (text + "\n").encode("utf-8", "replace")
        while data:
            data = data[os.write(fd, data) :]
        os.rename(path + ".tmp", path)
        if is_awaited:
            os.fsync(fd)
    finally:
        os.close(fd)


def sync(folder: str) -> None:
    """Write the end of the receipt, and the names of its files, to the disk. Nothing waits for that."""
    try:
        for path in (os.path.join(folder, "end.json"), folder):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            os.fsync(fd)
            os.close(fd)
    except OSError:
        pass  # it is written, but may not survive a loss of power


def started(began: float, options: "Any") -> "dict[str, object]":
    """What is known before the start."""
    prefix, named = "SLURM_", os.environ.get
    return {
        "v": 1,
        "run": options.run,
        "argv": masked(options.command),
        "cwd": here(),
        "host": os.uname().nodename,
        "pid": os.getppid(),
        "pid_namespace": pid_namespace(),
        "started_at": began,
        "slurm": {name.lower(): named(prefix + name) for name in SLURM.split() if named(prefix + name) is not None},
        "data_manifest": named("TRAINMON_DATA_MANIFEST"),
        "stdout": described(1),
        "stderr": described(2),
        "log": None if options.log is None else os.path.join(here(), options.log),
    }


def here() -> str:
    """The working directory."""
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return os.environ.get("PWD", "")


def pid_namespace() -> "str | None":
    """In which namespace the pids count: elsewhere they name other processes."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


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
        is_next = word.startswith("-") and "=" not in word and _names_secret(word)
    return found


def _names_secret(name: str) -> bool:
    """`--api-key`, `PGPASSWORD` and `DB_PASS` do; `PWD` does not."""
    before, _, last = name.lower().lstrip("-").replace("-", "_").rpartition("_")
    return last in SECRETS or last.endswith(("password", "sshpass")) or (last in ("pass", "pwd") and before != "")


def _masked(word: str) -> str:
    name, equals, value = word.partition("=")
    if equals and _names_secret(name):
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
