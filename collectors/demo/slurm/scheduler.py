"""The demo's Slurm: answers the commands of trainmon.slurm like a real one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from collectors.demo.model.inventory import GPUS, ME, NODES
from collectors.demo.slurm.jobs import DrainedNode, JobQueue, SlurmJob, iso_time
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


class CommandRefused(Exception):
    """A refused command. It exits with 1; the message is its standard error."""


class Scheduler:
    """Answers commands. Not thread-safe: the caller holds the world's lock."""

    def __init__(self, queue: JobQueue) -> None:
        self.queue = queue
        self._commands: dict[str, Callable[[Sequence[str]], str]] = {
            "squeue": self._squeue,
            "sinfo": self._sinfo,
            "scontrol": self._scontrol,
            "scancel": self._scancel,
            "sbatch": self._sbatch,
            "sacct": self._sacct,
            "sacctmgr": lambda args: "Operator\n",
            "id": lambda args: f"{ME}\n" if args == ["-un"] else f"{args[-1]}\n",
        }

    def knows(self, command: str) -> bool:
        return command in self._commands

    def answer(self, argv: Sequence[str], stdin: bytes = b"") -> Completed:
        """Run one command."""
        command, *args = argv
        if args == ["-o"]:  # scontrol reads its commands from standard input
            each = [self.answer((command, *line.split())) for line in stdin.decode().splitlines()]
            return Completed(
                max(done.status for done in each),
                b"".join(done.stdout for done in each),
                b"".join(done.stderr for done in each),
            )
        try:
            return Completed(0, self._commands[command](args).encode(), b"")
        except CommandRefused as refused:
            return Completed(1, b"", f"{refused}\n".encode())

    # ---- reading ----------------------------------------------------------------------------------------------------

    def _squeue(self, args: Sequence[str]) -> str:
        options = _options(args)
        if "--steps" in options:
            jobs = [job for job in self._found(options["--jobs"]) if job.state == "RUNNING"]
            mark = options["--format"].partition("%")[0]
            return "".join(f"{mark}{job.id}.{step}\n" for job in jobs for step in ("batch", "0"))
        users = options.get("--user", ME).split(",")
        rows = []
        for job in (job for job in self.queue.listed() if job.user in users):
            start = job.begins_at if job.is_pending else job.started_at
            rows.append({
                "A": str(job.number), "i": job.id, "F": str(job.array or job.number), "K": job.task_ids,
                "T": job.state, "u": job.user, "P": "h100", "a": "llm", "q": "normal", "D": str(job.node_count),
                "Q": "0" if job.is_held else "10040", "V": iso_time(job.submitted_at),
                "S": "N/A" if start is None else iso_time(start),
                "e": "N/A" if job.is_pending else iso_time(job.ends_at),
                "l": "7-00:00:00", "N": fold_nodes(job.nodes), "E": job.dependency,
                "r": job.reason, "Z": job.workdir, "j": job.name,
            })  # fmt: skip
        return _formatted(options, rows)

    def _sinfo(self, args: Sequence[str]) -> str:
        rows = []
        for name in NODES:
            is_busy = any(name in job.nodes for job in self.queue.jobs if job.state == "RUNNING")
            drain = self.queue.drains.get(name)
            state = ("draining" if is_busy else "drained") if drain else "allocated" if is_busy else "idle"
            rows.append({
                "N": name, "T": state, "H": iso_time(drain.at) if drain else "Unknown",
                "u": drain.by if drain else "Unknown", "G": f"gpu:h100:{GPUS}", "R": "h100",
                "E": drain.reason if drain else "none",
            })  # fmt: skip
        return _formatted(_options(args), rows)

    def _scontrol(self, args: Sequence[str]) -> str:
        match list(args):
            case ["--version"]:
                return f"slurm {VERSION}\n"
            case ["ping"]:
                return "Slurmctld(primary) at login1 is UP\n"
            case ["show", "config"]:
                return CONFIGURATION
            case ["show", "job", "-o", job_id] | ["show", "job", job_id]:
                return "".join(self._shown(job) for job in self._found(job_id, "slurm_load_jobs error: "))
            case ["requeue", "Incomplete", job_id]:
                for job in self._found(job_id, suffix=f" for job {job_id}"):
                    if job.is_pending:
                        raise CommandRefused(f"Job is pending execution for job {job_id}")
                    self.queue.requeue(job)
                return ""
            case ["hold" | "release" as verb, job_id]:
                for job in self._found(job_id):
                    job.is_held = verb == "hold"
                self.queue.advance(self.queue.now)
                return ""
            case ["update", target, *changes]:
                return self._update(target, dict(change.partition("=")[::2] for change in changes))
        raise CommandRefused(f"invalid keyword: {' '.join(args)[:80]}")

    def _shown(self, job: SlurmJob) -> str:
        array = f"ArrayJobId={job.array} ArrayTaskId={job.task_ids} ArrayTaskThrottle=1 " if job.array else ""
        start, end = (job.begins_at, None) if job.is_pending else (job.started_at, job.ends_at)
        out = f"{job.workdir}/logs/{4294967294 if job.tasks else job.number}_{job.name}.out"
        return (
            f"JobId={job.number} {array}JobName={job.name} UserId={job.user}(1001) GroupId=llm(100) MCS_label=N/A"
            f" Priority={0 if job.is_held else 10040} Nice=0 Account=llm QOS=normal JobState={job.state}"
            f" Reason={job.reason} Dependency={job.dependency} Requeue=1 Restarts={job.restarts}"
            f" BatchFlag=1 Reboot=0 ExitCode={job.exit_code} RunTime=00:00:00 TimeLimit=7-00:00:00 TimeMin=N/A"
            f" SubmitTime={iso_time(job.submitted_at)} StartTime={iso_time(start)} EndTime={iso_time(end)}"
            f" Deadline=N/A Partition=h100 AllocNode:Sid=login1:4711 ReqNodeList=(null)"
            f" ExcNodeList={fold_nodes(job.excluded) or '(null)'} NodeList={fold_nodes(job.nodes)}"
            f" NumNodes={job.node_count} AllocTRES={_resources(job)} Command={job.script} WorkDir={job.workdir}"
            f" StdErr={out} StdIn=/dev/null StdOut={out}\n"
        )

    def _sacct(self, args: Sequence[str]) -> str:
        options, lines = _options(args), []
        for job in (found for job_id in options["--jobs"].split(",") for found in self.queue.find(job_id)):
            values = {
                "JobIDRaw": str(job.number), "JobID": job.id,
                "State": f"{job.state} by {job.cancelled_by}" if job.cancelled_by else job.state,
                "ExitCode": job.exit_code, "Submit": iso_time(job.submitted_at), "Start": iso_time(job.started_at),
                "End": iso_time(job.ends_at) if job.is_over else "Unknown", "User": job.user, "Partition": "h100",
                "Account": "llm", "QOS": "normal", "NNodes": str(job.node_count),
                "NodeList": fold_nodes(job.nodes), "AllocTRES": _resources(job), "JobName": job.name,
            }  # fmt: skip
            lines.append(options["--delimiter"].join(values[name] for name in options["--format"].split(",")) + "\n")
        return "".join(lines)

    # ---- changing ---------------------------------------------------------------------------------------------------

    def _scancel(self, args: Sequence[str]) -> str:
        signal = _options(args).get("--signal")
        for job in self._found(args[-1], f"scancel: error: Kill job error on job id {args[-1]}: "):
            if signal is None or (signal != "USR1" and job.state == "RUNNING"):
                self.queue.cancel(job)
            elif job.name in self.queue.loops and job.state == "RUNNING":
                self.queue.loops[job.name].signal()
        return ""

    def _sbatch(self, args: Sequence[str]) -> str:
        options, script = _options(args), args[-1]
        run = next((name for name, loop in self.queue.loops.items() if loop.trainer.run.script == script), None)
        if run is None or not Path(script).is_file():
            raise CommandRefused(f"sbatch: error: Unable to open file {script}")
        count = re.fullmatch(r"1-(\d+)%1", options.get("--array", "1-1%1"))
        after = re.fullmatch(r"afterany:(\d+)(?:_\S+)?", options.get("--dependency", ""))
        if count is None:
            raise CommandRefused("sbatch: error: Invalid job array specification")
        job = self.queue.submit(run, int(count[1]), int(after[1]) if after else None)
        job.user = ME
        return f"Submitted batch job {job.number}\n"

    def _update(self, target: str, changes: Mapping[str, str]) -> str:
        kind, _, name = target.partition("=")
        if kind == "JobId":
            for job in self._found(name, suffix=f" for job {name}"):
                job.excluded = tuple(node for node in changes.get("ExcNodeList", "").split(",") if node)
        elif name not in NODES:
            raise CommandRefused("slurm_update error: Invalid node name specified")
        elif changes.get("State") == "DRAIN":
            self.queue.drains[name] = DrainedNode(changes.get("Reason", ""), ME, self.queue.now)
        else:
            self.queue.drains.pop(name, None)
        return ""

    def _found(self, job_id: str, prefix: str = "", suffix: str = "") -> list[SlurmJob]:
        jobs = [job for job in self.queue.find(job_id) if job in self.queue.listed()]
        if not jobs:
            raise CommandRefused(f"{prefix}{NO_JOB}{suffix}")
        return jobs


def _resources(job: SlurmJob) -> str:
    """What is allocated to a job: its nodes are its own."""
    return f"node={len(job.nodes)},gres/gpu={GPUS * len(job.nodes)}" if job.nodes else ""


def _options(args: Sequence[str]) -> dict[str, str]:
    return dict(arg.partition("=")[::2] for arg in args if arg.startswith("-"))


def _formatted(options: Mapping[str, str], rows: Sequence[Mapping[str, str]]) -> str:
    """Rows in the --format of squeue or sinfo: each field by its letter."""
    fields = FIELD.findall(options["--format"])
    return "".join("".join(f"{mark}{row[letter]}" for mark, letter in fields) + "\n" for row in rows)


def fold_nodes(nodes: Sequence[str]) -> str:
    """gpu-001, gpu-002 → `gpu-[001,002]`."""
    return "".join(nodes) if len(nodes) < 2 else f"gpu-[{','.join(node.rpartition('-')[2] for node in nodes)}]"
