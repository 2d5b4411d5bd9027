"""A receipt as its files are → what they tell. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from trainmon.analysis.attempts import provenance
from trainmon.analysis.runs import significant
from trainmon.lib import Instant, Seconds, clean, scrub
from trainmon.model import Receipt, ReceiptFiles
from trainmon.slurm.fields import hosts


class _Start(msgspec.Struct):
    """start.json, as far as it is read."""

    started_at: float
    host: str | None = None
    pid: int | None = None
    run: str | None = None
    argv: tuple[str, ...] = ()
    git_commit: str | None = None
    data_manifest: str | None = None
    slurm: Mapping[str, str] = {}
    stdout: Mapping[str, Any] | None = None
    log: str | None = None
    log_offset: int | None = None


class _Output(msgspec.Struct):
    tail: str | None = None


class _End(msgspec.Struct):
    """end.json, as far as it is read."""

    ended_at: float
    status: int | None = None
    signal: int | None = None
    output: _Output | None = None


START, END = msgspec.json.Decoder(_Start), msgspec.json.Decoder(_End)


def read(
    found: ReceiptFiles,
    directory: str,
    cluster: str,
    at: Instant,
    ahead: Callable[[str], Seconds],
    *,
    slurm: bool,
) -> Receipt | None:
    """A receipt as its files are; None if they are not those of trainmon-run. `ahead` is how far the clock of a host is
    ahead; `slurm`, whether the cluster has jobs."""
    try:
        start = START.decode(found.start or "")
        end = None if found.end is None else END.decode(found.end)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    skew = significant(ahead(start.host or ""))
    stdout = start.stdout if start.stdout is not None and start.stdout.get("kind") == "file" else {}
    path, offset = (stdout.get("path"), stdout.get("offset")) if start.log is None else (start.log, start.log_offset)
    is_by_srun = start.log is None and start.stdout is not None and start.stdout.get("through") == "srun"
    restart = start.slurm.get("restart_count", "0")
    receipt = Receipt(
        name=clean(found.name),
        path=found.path,
        cluster=cluster,
        directory=directory,
        started_at=start.started_at - skew,
        run=start.run,
        host=_shown(start.host),
        pid=start.pid,
        command_pid=found.command_pid,
        command=_shown(" ".join(start.argv)),
        git_commit=_shown(start.git_commit),
        data_manifest=_shown(start.data_manifest),
        job_id=_job_id(start.slurm) if slurm else None,
        restart=int(restart) if restart.isdecimal() else None,
        job_name=_shown(start.slurm.get("job_name")),
        nodes=hosts(start.slurm.get("job_nodelist", "")),
        log_path=path if isinstance(path, str) else None,
        log_offset=offset if isinstance(offset, int) else None,
        log_by_srun=is_by_srun,
        gone_at=at if found.gone and end is None else None,
    )
    if end is None:
        return receipt
    tail = None if end.output is None else end.output.tail
    return replace(receipt, ended_at=end.ended_at - skew, exit_code=end.status, signal=end.signal, tail_path=tail)


def _shown(text: str | None) -> str | None:
    return None if not text else clean(scrub(text), provenance.VALUE)


def _job_id(slurm: Mapping[str, str]) -> str | None:
    if "array_job_id" in slurm and "array_task_id" in slurm:
        return f"{slurm['array_job_id']}_{slurm['array_task_id']}"
    return slurm.get("job_id")
