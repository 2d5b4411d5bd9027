"""The part of trainmon-run that its companion runs: it writes the receipt. See trainmon_run.py."""

import posix

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
    named: "Callable[[str], str | None]",
) -> None:
    """Write the start of the receipt, then do what is asked for until the other process has ended."""
    facts = started(began, options, named)  # before it lets the descriptors go
    folder = joined(here(named), folder)
    nowhere = posix.open("/dev/null", posix.O_RDWR)
    for fd in (0, 1, 2):
        posix.dup2(nowhere, fd)
    keep_open(0, 1, 2, requests, answers)
    posix.umask(0o077)
    data, ending, message = b"start\n", None, ""  # type: bytes, Any, str
    last = "attach" if options.attach else "end"
    while True:
        while b"\n" in data:
            line, _, data = data.partition(b"\n")
            request, _, rest = line.decode("ascii").partition(" ")
            why = ""
            try:
                if request == "forget":
                    signal.sigtimedwait({int(rest)}, 0)  # others may be pending: CONT and TERM come together
                elif request == "start":
                    begin(folder, facts, options)
                elif request == "command":
                    write(folder, "command.json", json_text({"v": 1, "pid": int(rest)}))  # it may outlive this program
                elif request == "end":
                    message = ending["finish"](folder, facts, options, rest, json_text, write)
                else:
                    message += " " + ending["attach"](folder, facts, options, part, json_text, write)
            except OSError as error:
                why = str(error)
            if request != "command":
                posix.write(answers, (why + "\n").encode("utf-8", "replace"))
            if request == "end" and not why:
                sync(folder)
            if ending is None:  # while the command runs
                ending = part("run_end")
            if request == last and message and options.notify is not None:
                part("run_extras")["notify"](options.notify, folder, message, keep_open)
        more = posix.read(requests, 65536)
        if not more:
            return
        data += more


def begin(folder: str, facts: "dict[str, object]", options: "Any") -> None:
    """Write start.json."""
    try:
        posix.mkdir(folder, 0o700)
    except OSError:  # it is the first
        __import__("os").makedirs(folder, 0o700, exist_ok=True)
    facts["git_commit"] = commit_of(str(facts["cwd"]))
    if facts["log"] is not None:
        facts["log_offset"] = posix.stat(str(facts["log"])).st_size if exists(str(facts["log"])) else 0
    write(folder, "start.json", json_text(facts), is_awaited=True)


def write(folder: str, name: str, text: str, is_awaited: bool = False) -> None:
    """Write a file of the receipt so that a reader sees all of it or nothing; if it is awaited, down to the disk. That
    may take as long as the disk needs for all that the command has written.

    Raises:
        OSError: when it cannot be written.
    """
    path = "%s/%s" % (folder, name)
    fd = posix.open(path + ".tmp", posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC | posix.O_CLOEXEC, 0o600)
    try:
        data = (text + "\n").encode("utf-8", "replace")
        while data:
            data = data[posix.write(fd, data) :]
        posix.rename(path + ".tmp", path)
        if is_awaited:
            posix.fsync(fd)
    finally:
        posix.close(fd)


def sync(folder: str) -> None:
    """Write the end of the receipt, and the names of its files, to the disk. Nothing waits for that."""
    try:
        for path in (folder + "/end.json", folder):
            fd = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
            posix.fsync(fd)
            posix.close(fd)
    except OSError:
        pass  # it is written, but may not survive a loss of power


def started(began: float, options: "Any", named: "Callable[[str], str | None]") -> "dict[str, object]":
    """What is known before the start."""
    return {
        "v": 1,
        "run": options.run,
        "argv": masked(options.command),
        "cwd": here(named),
        "host": posix.uname().nodename,
        "pid": posix.getppid(),
        "pid_namespace": pid_namespace(),
        "started_at": began,
        "slurm": {name.lower(): named("SLURM_" + name) for name in SLURM.split() if named("SLURM_" + name) is not None},
        "data_manifest": named("TRAINMON_DATA_MANIFEST"),
        "stdout": described(1),
        "stderr": described(2),
        "log": None if options.log is None else joined(here(named), options.log),
    }


def here(named: "Callable[[str], str | None]") -> str:
    """The working directory."""
    try:
        return posix.getcwd()
    except OSError:  # it was removed
        return named("PWD") or ""


def pid_namespace() -> "str | None":
    """In which namespace the pids count: elsewhere they name other processes."""
    try:
        return posix.readlink("/proc/self/ns/pid")
    except OSError:
        return None


SLURM = (
    "CLUSTER_NAME JOB_ID JOB_NAME ARRAY_JOB_ID ARRAY_TASK_ID RESTART_COUNT STEP_ID PROCID NODEID JOB_NODELIST JOB_GPUS "
    "JOB_END_TIME"
)


def described(fd: int) -> "dict[str, object] | None":
    """What a descriptor is: its path, device and inode, and its size, where the output of the command begins."""
    try:
        found, path = posix.fstat(fd), posix.readlink("/proc/self/fd/%d" % fd)
    except OSError:
        return None
    kind = {0o10: "file", 0o01: "pipe", 0o02: "terminal", 0o14: "socket"}.get(found.st_mode >> 12, "other")
    if kind == "terminal" and not posix.isatty(fd):
        kind = "other"
    return {
        "kind": kind, "path": path, "device": found.st_dev, "inode": found.st_ino,
        "offset": found.st_size if kind == "file" else None,
        "through": "srun" if kind in ("pipe", "socket") and is_of_srun(fd, path) else None,
    }  # fmt: skip


def is_of_srun(fd: int, path: str) -> bool:
    """Whether slurmstepd has given this pipe to the task that this process belongs to: srun writes what comes out of
    it, and only srun knows its file."""
    pid = posix.getppid()
    try:
        while posix.readlink("/proc/%d/fd/%d" % (pid, fd)) == path:
            with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as stat:
                pid = int(stat.read().rpartition(")")[2].split()[1])
            with open("/proc/%d/comm" % pid, encoding="utf-8", errors="replace") as name:
                if name.read() == "slurmstepd\n":
                    return True
    except (OSError, ValueError, IndexError):
        pass  # another user's process, or the first one of a container
    return False


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
        while not exists(folder + "/.git"):
            if not folder:
                return None
            folder = folder.rpartition("/")[0]
        git = folder + "/.git"
        if posix.stat(git).st_mode >> 12 == 0o10:  # a file: a linked work tree
            git = joined(folder, _first_line(git)[len("gitdir: ") :])
        head = _first_line(git + "/HEAD")
        if not head.startswith("ref: "):
            return head
        common = git + "/commondir"
        shared = joined(git, _first_line(common)) if exists(common) else git
        for reference in ("%s/%s" % (git, head[5:]), "%s/%s" % (shared, head[5:])):
            if exists(reference):
                return _first_line(reference)
        with open(shared + "/packed-refs", encoding="utf-8") as packed:
            return next((line.split()[0] for line in packed if line.rstrip("\n").endswith(" " + head[5:])), None)
    except (OSError, ValueError, IndexError):
        return None


def exists(path: str) -> bool:
    try:
        posix.stat(path)
    except OSError:
        return False
    return True


def joined(folder: str, path: str) -> str:
    """The path, as seen from the folder."""
    return path if path.startswith("/") else "%s/%s" % (folder, path)


def _first_line(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.readline().strip()
