"""Parses Slurm's output into jobs and nodes. Other users write some of its text, so it is made printable first. Pure.

Slurm starts, holds, releases, requeues and cancels all components by the number of the first. A component alone can
only be taken away, which leaves half a job.
"""

from __future__ import annotations

import math
import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from trainmon.lib import Instant, Seconds, clean, scrub
from trainmon.model import Job, SchedulerNode
from trainmon.slurm.commands import ACCOUNTING, HISTORY, NODES, OWN_STEP, QUEUE

# ---- parses the values in Slurm's output -----------------------------------------------------------------------------

NOTHING = frozenset({
    "", "(null)", "None", "N/A", "n/a", "NONE", "none", "Unknown", "UNKNOWN", "NOT_SET", "INVALID", "UNLIMITED",
    "Partition_Limit", "None assigned", "INFINITE",
})  # fmt: skip
"""What Slurm writes for no value."""

FIRST_MARK = re.compile(r"^\|[0-9a-f]*#|\|[0-9a-f]{6}#", re.MULTILINE)
"""A login script may print text before our mark, without a line feed at its end."""
DURATION = re.compile(r"(?:(?P<days>\d+)-)?(?:(?P<hours>\d+):)?(?P<minutes>\d+):(?P<seconds>\d+)")
MOST_HOSTS = 100_000
"""More than any cluster has: a longer expression is not expanded."""


def rows(text: str, count: int) -> Iterator[list[str]]:
    """The rows of output with a mark before every field (see commands.MARK), as lists of `count` fields.

    The first row defines the mark. A line feed in a job's name does not end its row. A row with fewer fields is left
    out: the output was cut."""
    found = FIRST_MARK.search(text)
    if found is None:
        return
    mark = found[0]
    for row in re.split("\n(?=" + re.escape(mark) + ")", text[found.start() :]):
        fields = row.split(mark, count)[1:]
        if len(fields) == count:
            yield fields


def printable(text: str, limit: int = 4_000) -> str | None:
    """A field as printable text; None if Slurm has no value."""
    text = text.strip()
    return None if text in NOTHING else clean(text, limit)


def number(text: str) -> int | None:
    """`1024`, `4-8` (its start) or `12(idle)`; None for anything else."""
    found = re.match(r"\d+", text.strip())
    return int(found[0]) if found else None


def instant(text: str) -> Instant | None:
    """`2026-11-21T12:03:00`, in UTC, which the client sets."""
    try:
        return datetime.fromisoformat(text.strip()).replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return None


def seconds(text: str) -> Seconds | None:
    """`2-03:00:00`, `03:00:00` or `03:00`; None for UNLIMITED and the like."""
    found = DURATION.fullmatch(text.strip())
    if found is None:
        return None
    days, hours, minutes, rest = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + rest)


@lru_cache(maxsize=1024)
def hosts(text: str) -> tuple[str, ...]:
    """`gpu-[001-003,007],login1` → every name. An invalid expression is one name, unchanged.

    ClusterShell is not used: it would run its group commands for an `@` in text that other users write."""
    names: list[str] = []
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text if text not in NOTHING else ""):
        names += _expanded(clean(part.strip(), 1_000), MOST_HOSTS - len(names))
    return tuple(names)


def _expanded(text: str, limit: int) -> list[str]:
    names = [""]
    for plain, inside in re.findall(r"([^\[]+)|\[([^\]]*)\]", text):
        ends = [plain] if plain else _numbers(inside, limit)
        if not ends or len(names) * len(ends) > limit:
            return [text]
        names = [name + end for name in names for end in ends]
    return names


def _numbers(text: str, limit: int) -> list[str]:
    """`001-003,007` → 001, 002, 003, 007; empty if it is invalid."""
    found: list[str] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdigit() and last.isdigit()) or int(last) - int(first) >= limit - len(found):
            return []
        found += [str(value).zfill(len(first)) for value in range(int(first), int(last) + 1)]
    return found


# ---- parses Slurm's output into jobs ---------------------------------------------------------------------------------

# ---- heterogeneous jobs ----------------------------------------------------------------------------------------------

LIVELIEST = ("running", "unknown", "waiting", "ended")
"""The job is where the liveliest of its components is: one that ended early does not end the others."""


def joined(records: Iterable[Job]) -> tuple[Job, ...]:
    """The jobs of some records, each heterogeneous one once. Several attempts of a job stay several, in their order."""
    attempts: Counter[str] = Counter()
    groups: dict[tuple[str, int], list[Job]] = defaultdict(list)
    for record in records:
        attempts[record.id] += 1
        groups[record.id.partition("+")[0], attempts[record.id]].append(record)
    return tuple(_whole(number, parts) if "+" in parts[0].id else parts[0] for (number, _), parts in groups.items())


def _whole(number: str, records: Sequence[Job]) -> Job:
    """One job from its components. What only the batch script has (log, command, exit code) is the first one's."""
    parts = sorted(records, key=lambda part: int(part.id.partition("+")[2]))
    shown = min(parts, key=lambda part: (LIVELIEST.index(part.stage), part.stage == "waiting" and part.priority != 0))
    alive = [part for part in parts if part.stage == shown.stage]
    nodes = tuple(dict.fromkeys(node for part in alive for node in part.nodes))
    everywhere = tuple(node for node in parts[0].excluded if all(node in part.excluded for part in parts))
    excluded = dict.fromkeys(node for part in parts for node in part.excluded)
    return replace(
        parts[0],
        id=number,
        number=int(number),
        components=tuple(part.number for part in parts),
        component_nodes=tuple(part.nodes for part in parts),
        state=shown.state,
        reason=shown.reason,
        priority=shown.priority,
        partition=",".join(dict.fromkeys(part.partition for part in parts if part.partition)) or None,
        nodes=nodes,
        node_count=len(nodes) or _sum(part.node_count for part in alive),
        started_at=shown.started_at,
        starts_at=shown.starts_at,
        ends_at=min((part.ends_at for part in alive if part.ends_at is not None), default=None)
        if shown.stage == "running"
        else shown.ends_at,
        gpus=_sum(part.gpus for part in alive),
        gpus_requested=_sum(part.gpus_requested for part in parts),
        gpu_indices={node: indices for part in alive for node, indices in part.gpu_indices.items()},
        excluded=everywhere,
        excluded_in_part=tuple(node for node in excluded if node not in everywhere),
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


# ---- parses Slurm's output into jobs ---------------------------------------------------------------------------------

ID = re.compile(r"\d+(?:\+\d+)?(?:_(?:\d+|\[[\d,:%.\-]*\]))?")
"""88, 88_3, 88_[4-10%1], and 88+1: a component of a heterogeneous job."""


def read_queue(text: str, cluster: str) -> tuple[Job, ...]:
    """The jobs in the output of commands.queue."""
    return joined(
        filter(None, (_queued(dict(zip(QUEUE, row, strict=True)), cluster) for row in rows(text, len(QUEUE))))
    )


def _queued(field: dict[str, str], cluster: str) -> Job | None:
    own, record = field["i"].strip(), number(field["A"])
    if not ID.fullmatch(own) or record is None:
        return None
    tasks = printable(field["K"])
    job = Job(
        cluster=cluster,
        id=own,
        number=record,
        array=number(field["F"]) if tasks else None,
        tasks=tasks,
        name=printable(field["j"].rstrip("\n"), 300) or "",
        user=printable(field["u"], 100) or "",
        state=printable(field["T"], 60) or "UNKNOWN",
        reason=printable(field["r"], 500),
        partition=printable(field["P"], 200),
        account=printable(field["a"], 200),
        qos=printable(field["q"], 200),
        nodes=hosts(field["N"].strip()),
        node_count=number(field["D"]),
        priority=number(field["Q"]),
        submitted_at=instant(field["V"]),
        time_limit_s=seconds(field["l"]),
        dependency=printable(field["E"], 500),
        workdir=printable(field["Z"]),
    )
    return _timed(job, field["S"], field["e"])


def _timed(job: Job, start: str, end: str) -> Job:
    """With its times. The start is expected while the job waits; the end is expected while it runs."""
    if job.stage == "waiting":
        return replace(job, starts_at=instant(start))
    return replace(job, started_at=instant(start), ends_at=instant(end))


# ---- scontrol show job -o ---------------------------------------------------------------------------------------

HEAD = re.compile(
    r"JobId=(?P<JobId>\d+) (?:ArrayJobId=(?P<ArrayJobId>\d+) ArrayTaskId=(?P<ArrayTaskId>\S+) )?"
    r"(?:HetJobId=(?P<HetJobId>\d+) HetJobOffset=(?P<HetJobOffset>\d+) )?(?:\S+=\S* )*?"
    r"JobName=(?P<JobName>.*?) (?:HetJobIdSet=\S+ )?"
    r"UserId=(?P<UserId>[^=]*?)\(\d+\) GroupId=[^=]*?\(\d+\) MCS_label=\S* ",
    re.DOTALL,
)
COMMAND = " Command="
KEY = re.compile(r"(?:^| )([A-Z][A-Za-z:/]*)=")
TAIL = re.compile(
    r"(?P<Command>.*?)(?: SubmitLine=.*?)? WorkDir=(?P<WorkDir>.*?)(?: AdminComment=.*?)?(?: SystemComment=.*?)?"
    r"(?: Comment=(?P<Comment>.*?))?"
    r"(?: Extra=.*?)?(?: StdErr=(?P<StdErr>.*) StdIn=.* StdOut=(?P<StdOut>.*?))?"
    r"(?P<Rest> (?:SegmentSize|Switches|BurstBuffer|BurstBufferState|Power|GresEnforceBind|GresAllowTaskSharing"
    r"|GresOneTaskPerSharing|KillOInInvalidDependent|SpreadJob|OOMKillStep|CpusPerTres|MemPerTres|TresBind|TresFreq"
    r"|TresPer\w+|MailUser|NtasksPerTRES|Container|SELinuxContext|ResvPorts)[=:].*)?\s*",
    re.DOTALL,
)
"""The part with users' own text. Its fields are found by their order, which is the same in all versions."""


PROMPT = re.compile(r"^(?:scontrol: (?:show job \S+\n)?)+", re.MULTILINE)
"""Without a terminal, scontrol prints its prompt; with libreadline it also repeats what it reads."""


def read_job(text: str, cluster: str) -> tuple[Job, ...]:
    """The jobs in the output of commands.show_job and commands.show_jobs: several for an array."""
    records = re.split(r"\n(?=JobId=\d+ )", PROMPT.sub("", text))  # a name may have line feeds
    return joined(filter(None, (_shown(record, cluster) for record in records)))


def _shown(line: str, cluster: str) -> Job | None:
    head = HEAD.search(line)  # a login script may print text before it
    if head is None:
        return None
    middle, found, rest = line[head.end() :].partition(COMMAND)
    parts = KEY.split(middle)
    pairs = reversed(list(zip(parts[1::2], parts[2::2], strict=True)))  # the first one of each key counts
    field = defaultdict(str, {key: value.strip() for key, value in pairs})
    tail = TAIL.fullmatch(rest) if found else None
    field |= tail.groupdict("") if tail else {}
    array, tasks, own = head["ArrayJobId"], head["ArrayTaskId"], head["JobId"]
    if array is not None:
        own = f"{array}_{tasks}" if tasks.isdigit() else f"{array}_[{tasks}]"
    elif head["HetJobId"] is not None:
        own = f"{head['HetJobId']}+{head['HetJobOffset']}"
    job = Job(
        cluster=cluster,
        id=own,
        number=int(head["JobId"]),
        array=int(array) if array else None,
        tasks=tasks if array else None,
        name=printable(head["JobName"], 300) or "",
        user=printable(head["UserId"], 100) or "",
        state=printable(field["JobState"], 60) or "UNKNOWN",
        reason=printable(field["Reason"].replace("_", " "), 500),  # scontrol replaces spaces
        partition=printable(field["Partition"], 200),
        account=printable(field["Account"], 200),
        qos=printable(field["QOS"], 200),
        nodes=hosts(field["NodeList"]),
        node_count=number(field["NumNodes"]),
        priority=number(field["Priority"]),
        submitted_at=instant(field["SubmitTime"]),
        time_limit_s=seconds(field["TimeLimit"]),
        dependency=printable(field["Dependency"], 500),
        workdir=printable(field["WorkDir"]),
    )
    detailed = replace(_with_details(job, field), gpu_indices=_indices(middle))
    return _timed(detailed, field["StartTime"], field["EndTime"])


def _with_details(job: Job, field: defaultdict[str, str]) -> Job:
    """The job with what only scontrol shows."""
    command, comment = printable(field["Command"]), printable(field["Comment"], 500)
    stdout, stderr = printable(field["StdOut"]), printable(field["StdErr"])
    return replace(
        job,
        restarts=number(field["Restarts"]),
        preempted_at=instant(field["PreemptTime"]),
        requeue=_flag(field["Requeue"]),
        batch=_flag(field["BatchFlag"]),
        command=scrub(command) if command else None,
        stdout=expanded_path(stdout, job) if stdout else None,
        stderr=expanded_path(stderr, job) if stderr else None,
        comment=scrub(comment) if comment else None,
        excluded=hosts(field["ExcNodeList"]),
        gpus=_gpus(field["AllocTRES"], field["TRES"]),
        gpus_requested=_requested(field["Rest"], job.node_count),
        resources=printable(field["AllocTRES"]) or printable(field["TRES"]) or printable(field["ReqTRES"]),
        exit_code=printable(field["ExitCode"], 20),
    )


GPUS = re.compile(r"(?:^|,)gres/gpu=(\d+)(?:,|$)")
TYPED = re.compile(r"(?:^|,)gres/gpu:[^=,]+=(\d+)")


def _gpus(*allocations: str) -> int | None:
    """The job's GPUs; a waiting job has none yet. The field is AllocTRES since 23.02, and TRES before."""
    for text in allocations:
        if (total := GPUS.search(text)) is not None:
            return int(total[1])
        if by_type := TYPED.findall(text):
            return sum(map(int, by_type))
    return None


ON_NODES = re.compile(r" Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)")
INDICES = re.compile(r"(?:^|,)gpu(?::[^:(),]+)*\(IDX:([\d,-]+)\)")


def _indices(text: str) -> dict[str, tuple[int, ...]]:
    """By node, the GPUs in the details of a job: `Nodes=gpu-[1-2] CPU_IDs=0 Mem=0 GRES=gpu:h100:3(IDX:0-1,3)`."""
    return {
        node: tuple(int(number) for found in INDICES.findall(gres) for number in _numbers(found, MOST_HOSTS))
        for nodes, gres in ON_NODES.findall(text)
        for node in hosts(nodes)
        if INDICES.search(gres)
    }


PER = re.compile(r" TresPer(Node|Job)=(\S+)")
REQUESTED = re.compile(r"(?:^|,)gres[:/]gpu(?:[:=][A-Za-z][^:=,]*)?(?:[:=](\d+))?(?=,|$)")


def _requested(text: str, nodes: int | None) -> int | None:
    """The GPUs that a job requested: `TresPerNode=gres:gpu:8`, and `gres/gpu:h100:8` since 23.11."""
    for per, tres in PER.findall(text):
        if counts := [int(count or 1) for count in REQUESTED.findall(tres)]:
            return sum(counts) * ((nodes or 1) if per == "Node" else 1)
    return None


def _flag(text: str) -> bool | None:
    """BatchFlag is 2 if the job was requeued after a failed launch."""
    value = number(text)
    return None if value is None else value > 0


DETAILS = ("restarts", "requeue", "batch", "command", "stdout", "stderr", "comment", "excluded", "excluded_in_part",
           "gpus", "gpus_requested", "gpu_indices", "resources", "exit_code")  # fmt: skip


def detailed(job: Job, detail: Job) -> Job:
    """A row of the queue with what only scontrol shows of the same job. It may have been requeued in between: then its
    details are of its next attempt."""
    is_other = (job.number, job.user) != (detail.number, detail.user)
    if is_other or (None not in (job.submitted_at, detail.submitted_at) and job.submitted_at != detail.submitted_at):
        return job
    found = replace(job, **{name: getattr(detail, name) for name in DETAILS})
    return replace(found, workdir=job.workdir or detail.workdir)


# ---- output files (the patterns that scontrol does not expand) ----------------------------------------------------

FILENAME_PATTERN = re.compile(r"%(?P<width>\d*)(?P<letter>[AabJjNnstux%])")
NO_TASK = "4294967294"
"""Slurm's own value for %a of a job that is not one array task."""


def expanded_path(path: str, job: Job) -> str:
    """The path of a job's output on the node (sbatch(1), FILENAME PATTERN).

    scontrol expands %A %a %j %u and %x, with a width (`%4j`) only from 24.05, and never %N %n %J %s %t %b."""
    task = job.tasks if job.tasks is not None and job.tasks.isdigit() else None
    values = {
        "A": str(job.array or job.number),
        "a": task or NO_TASK,
        "b": str(int(task) % 10) if task else None,
        "j": str(job.number),
        "J": str(job.number),
        "N": job.nodes[0].partition(".")[0] if job.nodes else None,
        "n": "0",
        "s": "batch",
        "t": "0",
        "u": job.user or None,
        "x": job.name or None,
        "%": "%",
    }

    def value(found: re.Match[str]) -> str:
        known = values[found["letter"]]
        return found[0] if known is None else known.zfill(min(int(found["width"] or 0), 10))

    path = FILENAME_PATTERN.sub(value, path)
    if not path.startswith("/") and job.workdir is not None:
        path = posixpath.join(job.workdir, path)
    return path


# ---- the others -------------------------------------------------------------------------------------------------


def read_steps(text: str) -> tuple[str, ...]:
    """The ids of a job's steps: batch, extern, interactive, 0, 1 … Those in which our own probes run are left out."""
    found = (row.strip().partition("|")[::2] for (row,) in rows(text, 1))
    return tuple(step.rpartition(".")[2] for step, name in found if "." in step and name != OWN_STEP)


def read_accounting(text: str, cluster: str) -> tuple[Job, ...]:
    """The attempts of the requested jobs, oldest first. `cancelled_by` may be a user's number."""
    lines = (re.split(r"\|[0-9a-f]*#", line) for line in text.splitlines())
    records = [dict(zip(FIELDS[len(line)], line, strict=True)) for line in lines if len(line) in FIELDS]
    jobs = [_accounted(row, cluster) for row in records if RAW_ID.search(row["JobIDRaw"])]
    jobs.sort(key=lambda job: (job.number, job.submitted_at or 0.0, job.started_at or math.inf))
    attempts: Counter[int] = Counter()
    for index, job in enumerate(jobs):
        jobs[index] = replace(job, restarts=attempts[job.number])
        attempts[job.number] += 1
    return joined(jobs)


FIELDS = {len(fields): fields for fields in (ACCOUNTING, HISTORY)}
"""By their number."""


RAW_ID = re.compile(r"\d+$")
"""A login script may print text before the first one."""


def _accounted(field: dict[str, str], cluster: str) -> Job:
    state, _, by = field["State"].partition(" by ")
    own = field["JobID"].strip()
    array, _, tasks = own.partition("_")
    job = Job(
        cluster=cluster,
        id=own,
        number=int(RAW_ID.findall(field["JobIDRaw"])[0]),
        array=number(array) if tasks else None,
        tasks=tasks.strip("[]") or None,
        user=printable(field["User"], 100) or "",
        state=printable(state.rstrip("+"), 60) or "UNKNOWN",
        partition=printable(field["Partition"], 200),
        account=printable(field["Account"], 200),
        qos=printable(field["QOS"], 200),
        nodes=hosts(field["NodeList"].strip()),
        node_count=number(field["NNodes"]),
        submitted_at=instant(field["Submit"]),
        exit_code=printable(field["ExitCode"], 20),
        cancelled_by=printable(by, 100),
        name=printable(field.get("JobName", ""), 300) or "",
        gpus=_gpus(field.get("AllocTRES", "")),
        resources=printable(field.get("AllocTRES", "")),
    )
    if job.state == "REQUEUED":  # of an earlier attempt: that one has run and ended
        return replace(job, started_at=instant(field["Start"]), ends_at=instant(field["End"]))
    return _timed(job, field["Start"], field["End"])


def read_priority(text: str) -> str:
    """`age 1000 + fairshare 200`: the parts of a priority that are not 0, from commands.priority."""
    names, values = ([line.split() for line in text[text.find("JOBID") :].splitlines()[:2]] + [[], []])[:2]
    parts = [*zip(names, values, strict=False)][names.index("PRIORITY") + 1 if "PRIORITY" in names else len(names) :]
    return " + ".join(f"{name.lower()} {value}" for name, value in parts if value not in ("0", "0.0"))


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """The used part of a cluster's configuration."""

    version: str | None = None
    accounting: bool | None = None
    administrator: str | None = None
    """SlurmUser: like root, this user may do everything."""


def read_configuration(text: str) -> Configuration:
    """From `scontrol show config`."""
    lines = (line.partition("=") for line in reversed(text.splitlines()))  # the first one of each key counts
    found = {key.strip(): value.strip() for key, equals, value in lines if equals}
    storage = found.get("AccountingStorageType")
    owner = printable(found.get("SlurmUser", ""), 100)
    return Configuration(
        version=printable(found.get("SLURM_VERSION", ""), 40),
        accounting=None if storage is None else storage.endswith("slurmdbd"),
        administrator=owner.partition("(")[0] if owner else None,
    )


# ---- parses sinfo's nodes --------------------------------------------------------------------------------------------

SUFFIXES = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
    "+": "COMPLETING",
}
"""sinfo(1), NODE STATE CODES; `allocated+` is still cleaning up after a job."""

SHORT = {
    "ALLOC": "ALLOCATED",
    "COMP": "COMPLETING",
    "DRNG": "DRAINING",
    "FAILG": "FAILING",
    "INVAL": "INVALID_REG",
    "IDL": "IDLE",
    "MIX": "MIXED",
    "NPC": "PERFCTRS",
    "PLND": "PLANNED",
    "POW_DN": "POWERING_DOWN",
    "POW_UP": "POWERING_UP",
    "RESV": "RESERVED",
    "UNK": "UNKNOWN",
    "DRAIN": "DRAINED",
    "REBOOT": "REBOOT_REQUESTED",
    "MAINT": "MAINTENANCE",
}
"""Compact state names, and scontrol's own ones."""

BOTH = {
    "DRAINED": ("IDLE", "DRAIN"),
    "DRAINING": ("ALLOCATED", "DRAIN"),
    "FAILING": ("ALLOCATED", "FAIL"),
    "FAIL": ("IDLE", "FAIL"),
    "INVALID_REG": ("UNKNOWN", "DRAIN", "INVALID_REG"),
    "POWERED_DOWN": ("IDLE", "POWERED_DOWN"),
    "POWERING_DOWN": ("IDLE", "POWERING_DOWN"),
    "POWER_DOWN": ("IDLE", "POWER_DOWN"),
    "POWERING_UP": ("IDLE", "POWERING_UP"),
    "POWER_UP": ("IDLE", "POWERING_UP"),
    "MAINTENANCE": ("IDLE", "MAINTENANCE"),
    "REBOOT_REQUESTED": ("IDLE", "REBOOT_REQUESTED"),
    "REBOOT_ISSUED": ("IDLE", "REBOOT_ISSUED"),
    "RESERVED": ("IDLE", "RESERVED"),
    "BLOCKED": ("IDLE", "BLOCKED"),
    "PERFCTRS": ("IDLE", "PERFCTRS"),
    "PLANNED": ("IDLE", "PLANNED"),
}
"""sinfo's one word for a state with flags. `drained` may also be a node that is down. `inval` stands for
`IDLE+DRAIN+INVALID_REG`."""

REASON_BY = re.compile(r"\s*\[(?P<who>[^\[\]@]*)@(?P<when>[^\[\]@]*)\]$")


def read_state(text: str) -> tuple[str, tuple[str, ...]]:
    """`drained*` → IDLE with DRAIN and NOT_RESPONDING; `DOWN*+DRAIN` → DOWN with the same. Unknown names stay."""
    first, *others = text.strip().upper().split("+") if not text.endswith("+") else [text.strip().upper()]
    name, suffixes = _split_suffixes(first)
    name = SHORT.get(name, name)
    base, *flags = BOTH.get(name, (name,))
    flags += [SUFFIXES[suffix] for suffix in suffixes]
    for other in others:
        flag, suffixes = _split_suffixes(other)
        flags += [FLAGS.get(flag, flag), *(SUFFIXES[suffix] for suffix in suffixes)]
    return base, tuple(dict.fromkeys(flag for flag in flags if flag))


FLAGS = {"MAINT": "MAINTENANCE", "DRAINED": "DRAIN", "DRAINING": "DRAIN", "POWER": "POWERED_DOWN", "RES": "RESERVED"}
"""Flags in scontrol's older spelling."""


def _split_suffixes(name: str) -> tuple[str, str]:
    bare = name.rstrip("".join(SUFFIXES))
    return bare, name[len(bare) :]


def read_nodes(text: str, cluster: str) -> tuple[SchedulerNode, ...]:
    """The nodes, each once: sinfo repeats a node for each of its partitions."""
    found: dict[str, SchedulerNode] = {}
    for row in rows(text, len(NODES)):
        field = dict(zip(NODES, row, strict=True))
        name = printable(field["N"], 200)
        if name is None:
            continue
        before = found[name].partitions if name in found else ()
        partition = printable(field["R"].rstrip("*"), 200)
        state, flags = read_state(field["T"])
        reason, by, at = read_reason(field["E"])
        found[name] = SchedulerNode(
            name=name,
            cluster=cluster,
            state=state,
            flags=flags,
            reason=reason,
            reason_by=by or printable(field["u"], 200),
            reason_at=at or instant(field["H"]),
            gres=printable(field["G"], 300),
            partitions=(*before, partition) if partition else before,
        )
    return tuple(found.values())


def read_reason(text: str) -> tuple[str | None, str | None, Instant | None]:
    """`Not responding [slurm@2026-11-21T12:03:00]` → the reason, its user and its time."""
    found = REASON_BY.search(text)
    if found is None:
        return printable(text, 500), None, None
    return printable(text[: found.start()], 500), printable(found["who"], 200), instant(found["when"])


# ---- sbatch --test-only ----------------------------------------------------------------------------------------------


def read_start(text: str) -> tuple[str, ...]:
    """The nodes on which a job would start. Of a heterogeneous job, the word `nodes` is left out."""
    return hosts(",".join(re.findall(r" to start at \S+ using \d+ processors on (?:nodes )?(\S+)", text)))
