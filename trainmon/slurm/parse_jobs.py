"""What Slurm answers → jobs. Every text is a stranger's: it is made printable before it is kept. Pure."""

from __future__ import annotations

import re

import msgspec
from msgspec.structs import replace

from trainmon.lib import scrub
from trainmon.model import Job
from trainmon.slurm.commands import ACCOUNTING, QUEUE
from trainmon.slurm.fields import hosts, instant, number, rows, said, seconds
from trainmon.slurm.heterogeneous import joined
from trainmon.slurm.log_paths import expanded
from trainmon.slurm.parse_nodes import read_nodes

__all__ = ["detailed", "read_accounting", "read_configuration", "read_job", "read_nodes", "read_queue", "read_steps"]

ID = re.compile(r"\d+(?:\+\d+)?(?:_(?:\d+|\[[\d,:%.\-]*\]))?")
"""88, 88_3, 88_[4-10%1], and 88+1: a component of a heterogeneous job."""


def read_queue(text: str, cluster: str) -> tuple[Job, ...]:
    """The jobs of one answer to commands.queue."""
    jobs = (_queued(dict(zip(QUEUE, row, strict=True)), cluster) for row in rows(text, len(QUEUE)))
    return joined(job for job in jobs if job is not None)


def _queued(field: dict[str, str], cluster: str) -> Job | None:
    own, record = field["i"].strip(), number(field["A"])
    if not ID.fullmatch(own) or record is None:
        return None
    tasks = said(field["K"])
    job = Job(
        cluster=cluster,
        id=own,
        number=record,
        array=number(field["F"]) if tasks else None,
        tasks=tasks,
        name=said(field["j"].rstrip("\n"), 300) or "",
        user=said(field["u"], 100) or "",
        state=_word(field["T"]),
        reason=said(field["r"], 500),
        partition=said(field["P"], 200),
        account=said(field["a"], 200),
        qos=said(field["q"], 200),
        nodes=hosts(field["N"].strip()),
        node_count=number(field["D"]),
        priority=number(field["Q"]),
        submitted_at=instant(field["V"]),
        time_limit_s=seconds(field["l"]),
        dependency=said(field["E"], 500),
        workdir=said(field["Z"]),
    )
    return _timed(job, field["S"], field["e"])


def _timed(job: Job, start: str, end: str) -> Job:
    """A start is a plan while the job waits, and an end while it runs."""
    if job.stage == "waiting":
        return replace(job, starts_at=instant(start))
    return replace(job, started_at=instant(start), ends_at=instant(end))


def _word(text: str) -> str:
    return said(text, 60) or "UNKNOWN"


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
    r"(?: (?:SegmentSize|Switches|BurstBuffer|BurstBufferState|Power|GresEnforceBind|GresAllowTaskSharing"
    r"|GresOneTaskPerSharing|KillOInInvalidDependent|SpreadJob|OOMKillStep|CpusPerTres|MemPerTres|TresBind|TresFreq"
    r"|TresPer\w+|MailUser|NtasksPerTRES|Container|SELinuxContext|ResvPorts)[=:].*)?\s*",
    re.DOTALL,
)
"""What users wrote themselves: its parts are found by their order, which all versions share."""


def read_job(text: str, cluster: str) -> tuple[Job, ...]:
    """The jobs of one answer to commands.show_job: several where an array was asked for."""
    jobs = (_shown(record, cluster) for record in re.split(r"\n(?=JobId=\d+ )", text))  # a name may have line feeds
    return joined(job for job in jobs if job is not None)


def _shown(line: str, cluster: str) -> Job | None:
    head = HEAD.match(line)
    if head is None:
        return None
    middle, found, rest = line[head.end() :].partition(COMMAND)
    tail = TAIL.fullmatch(rest) if found else None
    field = _middle(middle) | (tail.groupdict("") if tail else {})
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
        name=said(head["JobName"], 300) or "",
        user=said(head["UserId"], 100) or "",
        state=_word(field.get("JobState", "")),
        reason=said(field.get("Reason", "").replace("_", " "), 500),  # which scontrol does the other way round
        partition=said(field.get("Partition", ""), 200),
        account=said(field.get("Account", ""), 200),
        qos=said(field.get("QOS", ""), 200),
        nodes=hosts(field.get("NodeList", "")),
        node_count=number(field.get("NumNodes", "")),
        priority=number(field.get("Priority", "")),
        submitted_at=instant(field.get("SubmitTime", "")),
        time_limit_s=seconds(field.get("TimeLimit", "")),
        dependency=said(field.get("Dependency", ""), 500),
    )
    return _timed(_details(job, field), field.get("StartTime", ""), field.get("EndTime", ""))


def _middle(text: str) -> dict[str, str]:
    """What lies between the job's name and its command: Slurm's own words, the first of each key."""
    parts = KEY.split(text)
    fields: dict[str, str] = {}
    for key, value in zip(parts[1::2], parts[2::2], strict=True):
        fields.setdefault(key, value.strip())
    return fields


def _details(job: Job, field: dict[str, str]) -> Job:
    """What only this answer says of a job."""
    command, workdir, out = (
        said(field.get("Command", "")),
        said(field.get("WorkDir", "")),
        said(field.get("StdOut", "")),
    )
    error, comment = said(field.get("StdErr", "")), said(field.get("Comment", ""), 500)
    job = replace(job, workdir=workdir)
    return replace(
        job,
        restarts=number(field.get("Restarts", "")),
        requeue=_flag(field.get("Requeue", "")),
        batch=_flag(field.get("BatchFlag", "")),
        command=scrub(command) if command else None,
        stdout=expanded(out, job) if out else None,
        stderr=expanded(error, job) if error else None,
        comment=scrub(comment) if comment else None,
        excluded=hosts(field.get("ExcNodeList", "")),
        gpus=_gpus(field),
        exit_code=said(field.get("ExitCode", ""), 20),
    )


GPUS = re.compile(r"(?:^|,)gres/gpu=(\d+)(?:,|$)")
TYPED = re.compile(r"(?:^|,)gres/gpu:[^=,]+=(\d+)")


def _gpus(field: dict[str, str]) -> int | None:
    """What the job was given; one that waits was given nothing yet. Since 23.02 it is AllocTRES."""
    for told in (field.get("AllocTRES", ""), field.get("TRES", "")):
        if (whole := GPUS.search(told)) is not None:
            return int(whole[1])
        if typed := TYPED.findall(told):
            return sum(map(int, typed))
    return None


def _flag(text: str) -> bool | None:
    """BatchFlag is 2 where the job was requeued after a failed launch."""
    value = number(text)
    return None if value is None else value > 0


DETAILS = ("restarts", "requeue", "batch", "command", "stdout", "stderr", "comment", "excluded", "excluded_in_part",
           "gpus", "exit_code")  # fmt: skip


def detailed(job: Job, detail: Job) -> Job:
    """A row of the queue with what only scontrol says of the same job."""
    if (job.number, job.user) != (detail.number, detail.user):
        return job
    found = replace(job, **{name: getattr(detail, name) for name in DETAILS})
    return replace(found, workdir=job.workdir or detail.workdir)


# ---- the others -------------------------------------------------------------------------------------------------


def read_steps(text: str) -> tuple[str, ...]:
    """The names of a job's steps: batch, extern, interactive, 0, 1 …"""
    return tuple(name.strip().rpartition(".")[2] for (name,) in rows(text, 1) if "." in name)


def read_accounting(text: str, cluster: str) -> tuple[Job, ...]:
    """The attempts of the jobs that were asked for, oldest first; `cancelled_by` is a number where it is one."""
    lines = (re.split(r"\|[0-9a-f]*#", line) for line in text.splitlines())
    rows_ = [dict(zip(ACCOUNTING, line, strict=True)) for line in lines if len(line) == len(ACCOUNTING)]
    jobs = [_accounted(row, cluster) for row in rows_ if row["JobIDRaw"].isdigit()]
    return joined(sorted(jobs, key=lambda job: (job.number, job.submitted_at or 0.0)))


def _accounted(field: dict[str, str], cluster: str) -> Job:
    word, _, by = field["State"].partition(" by ")
    own = field["JobID"].strip()
    array, _, tasks = own.partition("_")
    job = Job(
        cluster=cluster,
        id=own,
        number=int(field["JobIDRaw"]),
        array=number(array) if tasks else None,
        tasks=tasks.strip("[]") or None,
        user=said(field["User"], 100) or "",
        state=_word(word.rstrip("+")),
        partition=said(field["Partition"], 200),
        account=said(field["Account"], 200),
        qos=said(field["QOS"], 200),
        nodes=hosts(field["NodeList"].strip()),
        node_count=number(field["NNodes"]),
        submitted_at=instant(field["Submit"]),
        exit_code=said(field["ExitCode"], 20),
        cancelled_by=said(by, 100),
    )
    return _timed(job, field["Start"], field["End"])


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster's configuration says that matters here."""

    version: str | None = None
    accounting: bool | None = None
    administrator: str | None = None
    """SlurmUser: with root, who may do everything."""


def read_configuration(text: str) -> Configuration:
    """From `scontrol show config`."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals:
            found.setdefault(key.strip(), value.strip())
    storage = found.get("AccountingStorageType")
    owner = said(found.get("SlurmUser", ""), 100)
    return Configuration(
        version=said(found.get("SLURM_VERSION", ""), 40),
        accounting=None if storage is None else storage.endswith("slurmdbd"),
        administrator=owner.partition("(")[0] if owner else None,
    )
