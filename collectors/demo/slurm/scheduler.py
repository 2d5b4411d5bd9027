"""What the demo's Slurm prints: the commands of trainmon.slurm, answered from its book as a real one would."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from collectors.demo.model.inventory import GPUS, ME, NODES
from collectors.demo.slurm.jobs import Book, Drain, Entry, stamp
from trainmon.transport.shell import Completed

FIELD = re.compile(r"(\|[0-9a-f]*#)%?(\w+)")
VERSION = "24.05.4"
CONFIGURATION = f"""\
AccountingStorageType   = accounting_storage/slurmdbd
SlurmUser               = slurm(64030)
SLURM_VERSION           = {VERSION}
"""
USERS = ("ana", "ben", "eva", "kim", "lea")
NO_JOB = "Invalid job id specified"


class Refused(Exception):
    """What a command complains before it ends with status 1."""


class Scheduler:
    """Answers commands. Not thread-safe: its caller holds the world."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self._commands: dict[str, Callable[[Sequence[str]], str]] = {
            "squeue": self._squeue,
            "sinfo": self._sinfo,
            "scontrol": self._scontrol,
            "scancel": self._scancel,
            "sbatch": self._sbatch,
            "sacct": self._sacct,
            "sacctmgr": lambda words: "Operator\n",
            "id": lambda words: f"{ME}\n" if words == ["-un"] else f"{words[-1]}\n",
        }

    def knows(self, command: str) -> bool:
        return command in self._commands

    def answer(self, argv: Sequence[str]) -> Completed:
        """One command, to its end."""
        command, *words = argv
        try:
            return Completed(0, self._commands[command](words).encode(), b"")
        except Refused as refused:
            return Completed(1, b"", f"{refused}\n".encode())

    # ---- looking ----------------------------------------------------------------------------------------------------

    def _squeue(self, words: Sequence[str]) -> str:
        options = _options(words)
        if "--steps" in options:
            entries = [entry for entry in self._found(options["--jobs"]) if entry.state == "RUNNING"]
            mark = options["--format"].partition("%")[0]
            return "".join(f"{mark}{entry.id}.{step}\n" for entry in entries for step in ("batch", "0"))
        users = options["--user"].split(",") if "--user" in options else [ME]
        fields = FIELD.findall(options["--format"])
        rows = [self._row(entry) for entry in self.book.listed() if entry.user in users]
        return "".join("".join(f"{mark}{row[letter]}" for mark, letter in fields) + "\n" for row in rows)

    def _row(self, entry: Entry) -> Mapping[str, str]:
        tasks = entry.id.partition("_")[2].strip("[]") if entry.array is not None else "N/A"
        waits = entry.state == "PENDING"
        start = entry.begins_at if waits else entry.started_at
        return {
            "A": str(entry.number), "i": entry.id, "F": str(entry.array or entry.number), "K": tasks,
            "T": entry.state, "u": entry.user, "P": "h100", "a": "llm", "q": "normal", "D": str(entry.node_count),
            "Q": "0" if entry.is_held else "10040", "V": stamp(entry.submitted_at),
            "S": "N/A" if start is None else stamp(start), "e": "N/A" if waits else stamp(entry.ends_at),
            "l": "7-00:00:00", "N": folded_names(entry.nodes), "E": self._dependency(entry),
            "r": entry.reason, "Z": entry.workdir, "j": entry.name,
        }  # fmt: skip

    @staticmethod
    def _dependency(entry: Entry) -> str:
        waits = entry.reason == "Dependency" and entry.after is not None
        return f"afterany:{entry.after}(unfulfilled)" if waits else "(null)"

    def _sinfo(self, words: Sequence[str]) -> str:
        fields = FIELD.findall(_options(words)["--format"])
        rows = [self._node(name) for name in NODES]
        return "".join("".join(f"{mark}{row[letter]}" for mark, letter in fields) + "\n" for row in rows)

    def _node(self, name: str) -> Mapping[str, str]:
        busy = any(name in entry.nodes for entry in self.book.entries if entry.state == "RUNNING")
        drain = self.book.drains.get(name)
        state = ("draining" if busy else "drained") if drain else "allocated" if busy else "idle"
        return {
            "N": name, "T": state, "H": stamp(drain.at) if drain else "Unknown", "u": drain.by if drain else "Unknown",
            "G": f"gpu:h100:{GPUS}", "R": "h100", "E": drain.reason if drain else "none",
        }  # fmt: skip

    def _scontrol(self, words: Sequence[str]) -> str:
        match list(words):
            case ["--version"]:
                return f"slurm {VERSION}\n"
            case ["ping"]:
                return "Slurmctld(primary) at login1 is UP\n"
            case ["show", "config"]:
                return CONFIGURATION
            case ["show", "job", "-o", job]:
                return "".join(self._shown(entry) for entry in self._found(job, "slurm_load_jobs error: "))
            case ["requeue", "Incomplete", job]:
                for entry in self._found(job, suffix=f" for job {job}"):
                    refusal = self.book.requeue(entry)
                    if refusal is not None:
                        raise Refused(f"{refusal} for job {job}")
                return ""
            case ["hold" | "release" as verb, job]:
                for entry in self._found(job):
                    entry.is_held = verb == "hold"
                self.book.advance(self.book.now)
                return ""
            case ["update", what, *changes]:
                return self._update(what, dict(change.partition("=")[::2] for change in changes))
        raise Refused(f"invalid keyword: {' '.join(words)[:80]}")

    def _shown(self, entry: Entry) -> str:
        array, waits = "", entry.state == "PENDING"
        if entry.array is not None:
            tasks = entry.id.partition("_")[2].strip("[]")
            array = f"ArrayJobId={entry.array} ArrayTaskId={tasks} ArrayTaskThrottle=1 "
        start, end = (entry.begins_at, None) if waits else (entry.started_at, entry.ends_at)
        out = self._log_of(entry)
        return (
            f"JobId={entry.number} {array}JobName={entry.name} UserId={entry.user}(1001) GroupId=llm(100) MCS_label=N/A"
            f" Priority={0 if entry.is_held else 10040} Nice=0 Account=llm QOS=normal JobState={entry.state}"
            f" Reason={entry.reason} Dependency={self._dependency(entry)} Requeue=1 Restarts={entry.restarts}"
            f" BatchFlag=1 Reboot=0 ExitCode={entry.exit_code} RunTime=00:00:00 TimeLimit=7-00:00:00 TimeMin=N/A"
            f" SubmitTime={stamp(entry.submitted_at)} StartTime={stamp(start)} EndTime={stamp(end)} Deadline=N/A"
            f" Partition=h100 AllocNode:Sid=login1:4711 ReqNodeList=(null)"
            f" ExcNodeList={folded_names(entry.excluded) or '(null)'} NodeList={folded_names(entry.nodes)}"
            f" NumNodes={entry.node_count} Command={entry.script} WorkDir={entry.workdir}"
            f" StdErr={out} StdIn=/dev/null StdOut={out}\n"
        )

    def _log_of(self, entry: Entry) -> str:
        number = "4294967294" if entry.tasks else str(entry.number)
        return f"{entry.workdir}/logs/{number}_{entry.name}.out"

    def _sacct(self, words: Sequence[str]) -> str:
        options = _options(words)
        rows = []
        for entry in (one for job in options["--jobs"].split(",") for one in self.book.find(job)):
            by = f" by {entry.cancelled_by}" if entry.cancelled_by else ""
            values = {
                "JobIDRaw": str(entry.number), "JobID": entry.id, "State": entry.state + by,
                "ExitCode": entry.exit_code, "Submit": stamp(entry.submitted_at), "Start": stamp(entry.started_at),
                "End": stamp(entry.ends_at) if entry.is_over else "Unknown", "User": entry.user, "Partition": "h100",
                "Account": "llm", "QOS": "normal", "NNodes": str(entry.node_count),
                "NodeList": folded_names(entry.nodes),
            }  # fmt: skip
            rows.append(options["--delimiter"].join(values[name] for name in options["--format"].split(",")))
        return "".join(f"{row}\n" for row in rows)

    # ---- acting -----------------------------------------------------------------------------------------------------

    def _scancel(self, words: Sequence[str]) -> str:
        options = _options(words)
        entries = self._found(words[-1], f"scancel: error: Kill job error on job id {words[-1]}: ")
        for entry in entries:
            name = options.get("--signal")
            loop = self.book.loops.get(entry.name)
            if name is None or (name != "USR1" and entry.state == "RUNNING"):
                self.book.cancel(entry)
            elif loop is not None and entry.state == "RUNNING":
                loop.signal()
        return ""

    def _sbatch(self, words: Sequence[str]) -> str:
        options, script = _options(words), words[-1]
        run = next((name for name, loop in self.book.loops.items() if loop.trainer.run.script == script), None)
        if run is None or not Path(script).is_file():
            raise Refused(f"sbatch: error: Unable to open file {script}")
        count = re.fullmatch(r"1-(\d+)%1", options.get("--array", "1-1%1"))
        after = re.fullmatch(r"afterany:(\d+)(?:_\S+)?", options.get("--dependency", ""))
        if count is None:
            raise Refused("sbatch: error: Invalid job array specification")
        entry = self.book.submit(run, int(count[1]), int(after[1]) if after else None)
        entry.user = ME
        return f"Submitted batch job {entry.number}\n"

    def _update(self, what: str, changes: Mapping[str, str]) -> str:
        kind, _, name = what.partition("=")
        if kind == "JobId":
            for entry in self._found(name, suffix=f" for job {name}"):
                entry.excluded = tuple(node for node in changes.get("ExcNodeList", "").split(",") if node)
        elif name not in NODES:
            raise Refused("slurm_update error: Invalid node name specified")
        elif changes.get("State") == "DRAIN":
            self.book.drains[name] = Drain(changes.get("Reason", ""), ME, self.book.now)
        else:
            self.book.drains.pop(name, None)
        return ""

    def _found(self, job: str, prefix: str = "", suffix: str = "") -> list[Entry]:
        entries = [entry for entry in self.book.find(job) if entry in self.book.listed()]
        if not entries:
            raise Refused(f"{prefix}{NO_JOB}{suffix}")
        return entries


def _options(words: Sequence[str]) -> dict[str, str]:
    return dict(word.partition("=")[::2] for word in words if word.startswith("-"))


def folded_names(nodes: Sequence[str]) -> str:
    """gpu-001, gpu-002 → `gpu-[001,002]`."""
    if len(nodes) < 2:
        return "".join(nodes)
    return f"gpu-[{','.join(node.rpartition('-')[2] for node in nodes)}]"
