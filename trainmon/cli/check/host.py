"""Checks one host: its name, connection, host key, login, probe, GPUs, quotas, and each path of the config."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from collectors.assignment import rivals
from collectors.nodes.backoff import NEEDS_A_JOB, NEEDS_A_STEP, requires_job
from collectors.nodes.steps.shell import StepShell
from collectors.probe import bundle
from collectors.quota.collector import QuotaQuery, run_query
from trainmon.analysis.checkpoints import is_eval_log, read_results
from trainmon.analysis.runs import other_switches, read_status, status_file
from trainmon.cli.check.output import FileTest, Row, check_files, reported
from trainmon.cli.check.probe import LogChecks, ProbeOutput, run_probe
from trainmon.cli.check.slurm import SlurmCheck, check_slurm
from trainmon.cli.check.wandb import client_file_row
from trainmon.lib import (
    HostKeyRefused,
    HostUnreachable,
    LoginNeeded,
    LoginRefused,
    Seconds,
    SystemClock,
    TrainmonError,
    clean,
    clock_difference,
    counted,
    size,
)
from trainmon.lib.deadline import DeadlineExceeded, DeadlineRunner
from trainmon.model import DANGLING, ON_NODE, RunSpec, Spec
from trainmon.slurm.commands import OWN_STEP
from trainmon.transport.shell import Shell
from trainmon.transport.ssh.config import HostSettings, openssh_settings
from trainmon.transport.ssh.connect import addresses

PROBE_TIMEOUT: Seconds = 20.0
"""A cold Python on a loaded node has taken 8 s to start; nvmlInit on eight GPUs without persistence as long."""

RESOLVE_TIMEOUT: Seconds = 10.0
QUOTA_TIMEOUT: Seconds = 30.0
SKEW: Seconds = 5.0


class HostCheck(NamedTuple):
    """The checks of one host."""

    host: str
    cluster: str
    python: str
    spec: Spec | None
    """None: only Slurm is checked there."""
    logs: LogChecks
    files: tuple[FileTest, ...] = ()
    slurm: SlurmCheck | None = None
    ssh_config: Path | None = None
    quotas: tuple[QuotaQuery, ...] = ()
    runs: tuple[RunSpec, ...] = ()
    by: Literal["ssh", "srun", "auto"] = "ssh"
    """How it is reached."""


def check_host(check: HostCheck, connect: Callable[[], Shell], *, is_here: bool) -> Iterator[Row]:
    """The steps to one host. They end at the first failure, because the next steps need it."""
    host = check.host
    if not is_here and check.by != "srun":
        found = list(reported(host, "settings", _resolved(check)))
        yield from found if check.by == "ssh" else map(_as_note, found)
        if found[-1].mark == "bad" and check.by == "ssh":
            return
    try:
        shell = connect()
        if isinstance(shell, StepShell):
            shell.test()
    except TrainmonError as error:
        yield from _not_connected(host, error) if check.by != "srun" else _without_step(host, error)
        return
    try:
        if isinstance(shell, StepShell):
            text = f"a step of job {shell.part.job}, named {OWN_STEP}" + f"; {SSH_REFUSED}" * (check.by == "auto")
            yield Row("ok", host, "srun", text)
        elif not is_here:
            yield Row("ok", host, "connection", "answers")
            yield Row("ok", host, "host key", "known")
            text = "needs an interactive login: the dashboard prompts you; the daemon cannot log in"
            yield Row("note", host, "login", text) if shell.prompted else Row("ok", host, "login", "no prompt")
        if check.spec is not None:
            yield from reported(host, "probe", _probed(check, check.spec, shell))
        yield from check_files(host, shell, check.files)
        yield from check_quotas(host, shell, check.quotas)
        if check.slurm is not None:
            yield from check_slurm(host, check.slurm, shell)
    finally:
        shell.close()


def _as_note(row: Row) -> Row:
    """SSH need not lead to a host: a step may."""
    return row._replace(mark="note") if row.mark == "bad" else row


SSH_REFUSED = "the node refuses SSH"


def _without_step(host: str, error: TrainmonError) -> Iterator[Row]:
    if requires_job(error):
        text = f"{NEEDS_A_STEP}: the node is watched only while one of your jobs runs there"
        yield Row("note", host, "srun", text)
    else:
        yield Row("bad", host, "srun", error.message, error.hint or f"try: srun --overlap -w {host} hostname")


def _resolved(check: HostCheck) -> Iterator[Row]:
    """The settings of ssh's config for the name, and its address."""
    host = check.host
    user, _, name = host.rpartition("@")
    settings = openssh_settings(name, check.ssh_config, user=user or None)
    if settings.identity_agent not in (None, os.environ.get("SSH_AUTH_SOCK")):
        text = f"uses the SSH agent at {settings.identity_agent}: the daemon needs it even when nobody is logged in"
        yield Row(
            "note",
            host,
            "agent",
            text,
            "or give the daemon a key file without a passphrase: IdentityFile in ~/.ssh/config",
        )
    if settings.proxy_jump:
        yield Row("ok", host, "name", f"{settings.hostname}, through {' and '.join(settings.proxy_jump)}")
    elif settings.proxy_command:
        yield Row("ok", host, "name", f"{settings.hostname}, through a ProxyCommand")
    else:
        yield _looked_up(host, settings)


def _looked_up(host: str, settings: HostSettings) -> Row:
    """The address of the name, resolved on a thread, because a resolver may hang for minutes."""
    resolver: DeadlineRunner[Any] = DeadlineRunner(f"resolve {host}")
    why: str | None
    try:
        found = resolver.call(partial(addresses, settings), RESOLVE_TIMEOUT)
        return Row("ok", host, "name", f"{settings.hostname} resolves to {found[0][4][0]}")
    except OSError as error:
        why, is_dns = error.strerror, error.errno == socket.EAI_AGAIN
    except DeadlineExceeded:
        why, is_dns = f"no answer within {RESOLVE_TIMEOUT:g}s", True
    fix = "check the DNS of this machine" if is_dns else "correct the name in the config, or HostName in ~/.ssh/config"
    fix += f"; try: getent hosts {settings.hostname}"
    return Row("bad", host, "name", f"{settings.hostname} cannot be resolved: {why}", fix)


def _not_connected(host: str, error: TrainmonError) -> Iterator[Row]:
    is_login, is_host_key = isinstance(error, LoginRefused | LoginNeeded), isinstance(error, HostKeyRefused)
    if is_login or is_host_key or requires_job(error):
        yield Row("ok", host, "connection", "answers")
    if requires_job(error):
        yield Row("note", host, "login", f"{NEEDS_A_JOB}: the node is watched only while one of your jobs runs there")
        return
    if is_login:
        yield Row("ok", host, "host key", "known")
    step = "login" if is_login else "host key" if is_host_key else "connection"
    fix = error.hint or (f"try: ssh {host}" if isinstance(error, HostUnreachable) else "")
    yield Row("bad", host, step, error.message, fix)


def _probed(check: HostCheck, spec: Spec, shell: Shell) -> Iterator[Row]:
    host, started = check.host, time.time()
    output = run_probe(shell, spec, check.python, PROBE_TIMEOUT)
    for part, text in output.troubles.items():
        yield Row("bad", host, part, text)
    hello = output.hello
    if hello is None:
        why = output.end or f"no output within {PROBE_TIMEOUT:g}s"
        fix = bundle.START_HINT.format(host=host, python=check.python)
        yield Row("bad", host, "probe", f"{why}: {output.printed}" if output.printed else why, fix)
        return
    found = "no GPU driver" if hello.probe == "none" else hello.probe
    versions = (found, hello.python and f"Python {hello.python}", hello.driver and f"driver {hello.driver}")
    yield Row("ok", host, "probe", ", ".join(part for part in versions if part))
    if hello.note:
        yield Row("note", host, "probe", hello.note)
    skew = clock_difference(hello.t, started, time.time())
    if abs(skew) > SKEW:
        text = f"{abs(skew):.0f}s {'ahead of' if skew > 0 else 'behind'} the local clock; all ages use the local clock"
        yield Row("note", host, "clock", text)
    yield from _gpus(host, output)
    yield from _files(check, spec, output)


def _gpus(host: str, output: ProbeOutput) -> Iterator[Row]:
    facts, expected = (output.facts.g, output.facts.expected) if output.facts else ((), None)
    samples = output.gpus.g if output.gpus else ()
    if not facts and not samples and not expected:
        yield Row("note", host, "GPUs", "none")
        return
    for gpu in samples:
        if gpu.error or gpu.lost:
            yield Row("bad", host, f"GPU {gpu.index}", gpu.error or "lost", "run nvidia-smi -q there for details")
    count = len(samples) or len(facts)
    name = next((gpu.name for gpu in facts if gpu.name), "unknown model")
    if expected is not None and expected > count:
        fix = "dmesg there may show an Xid; reset the GPU or reboot the node"
        yield Row("bad", host, "GPUs", f"{count} of {expected} × {name}", fix)
    else:
        yield Row("ok", host, "GPUs", f"{count} × {name}")


def _files(check: HostCheck, spec: Spec, output: ProbeOutput) -> Iterator[Row]:
    """Disks, logs and switches, as the probe reports them."""
    host = check.host
    yield from _disks(host, spec, output)
    if output.hello is not None and output.hello.python is None:
        logs = (log.pattern for log in spec.logs if not log.local)
        for path in (*logs, *spec.switches, *(one.directory for one in spec.wandb)):
            yield Row("bad", host, path, "needs python3", "install it there, or set `python` of the [[cluster]]")
        return
    yield from _logs(check, spec, output)
    for path in spec.switches:
        switch = output.switches.get(path)
        if switch is None or switch.error or switch.exists is None:
            why = (switch.error if switch else None) or "cannot be read"
            fix = "its directory must exist, and you need x permission on it"
            yield Row("bad", host, path, why, "remove the link" if why.startswith(DANGLING) else fix)
        else:
            yield Row("ok", host, path, "armed" if switch.exists else "not armed")
    yield from _trainers(check, spec, output)
    yield from _receipts(host, spec, output)
    for one in spec.wandb:
        yield client_file_row(host, one, output.wandb.get(one.id))


def _logs(check: HostCheck, spec: Spec, output: ProbeOutput) -> Iterator[Row]:
    """The logs of the runs and of their evaluations."""
    shared = rivals(run for run in check.runs if run.cluster == check.cluster)
    for log in spec.logs:
        if (owners := shared.get(log.id)) and not log.local:
            yield Row(
                "note",
                check.host,
                log.pattern,
                f"may also match logs of {', '.join(one.name for one in owners)}, which are not read for {log.id}",
                f"correct the `log` of {log.id}, so that it matches its own only",
            )
        chunk = output.logs.get(log.id)
        if log.optional and chunk is not None and chunk.path is None and chunk.error is None:
            continue
        if chunk is None or chunk.path is None or chunk.error:
            why = (chunk.error if chunk else None) or "no such file"
            if is_eval_log(log.id):
                fix = "the first evaluation creates it; else fix `results` of [[eval]]"
                yield Row("note", check.host, log.pattern, why, fix)
            else:
                check.logs.missing.setdefault(
                    log.id,
                    Row("bad", check.host, log.pattern, why, f"start the run {log.id}, or fix its `log` in the config"),
                )
        elif is_eval_log(log.id):
            results, invalid = read_results(chunk.lines)
            text = f"{counted(len(results), 'result')} in its last {counted(len(chunk.lines), 'line')}"
            fix = "docs/evals.md has the format of its lines" if invalid else ""
            yield Row("bad" if invalid else "ok", check.host, log.pattern, text, fix)
        else:
            same = [one for one, other in output.logs.items() if one != log.id and other.path == chunk.path]
            yield Row(
                "note" if same else "ok",
                check.host,
                log.pattern,
                f"followed: {chunk.path}"
                + f", also for {', '.join(one.removeprefix(ON_NODE) for one in same)}" * bool(same),
                "give each run a `log` of its own" * bool(same),
            )
            yield check.logs.check(check.host, log.id.removeprefix(ON_NODE), chunk)


def _disks(host: str, spec: Spec, output: ProbeOutput) -> Iterator[Row]:
    for path in spec.disks:
        disk = output.disks.get(path)
        if disk is None or disk.state == "hung":
            yield Row(
                "bad",
                host,
                path,
                "does not answer",
                f"its file server may be down; if so, `df {path}` on {host} hangs as well",
            )
        elif disk.state == "error":
            yield Row("bad", host, path, disk.error or "cannot be read", "fix the path in the config")
        else:
            yield Row("ok", host, path, f"{disk.filesystem or 'a disk'} at {disk.mount or path}")


def _trainers(check: HostCheck, spec: Spec, output: ProbeOutput) -> Iterator[Row]:
    """Whether the trainers look at the switches of the config, as their status files say. A missing file is no fault:
    few trainers have trainmon_hooks."""
    requested = {file.id for file in spec.files}
    for run in check.runs:
        file = status_file(run)
        content = None if file is None or file.id not in requested else output.files.get(file.id)
        if file is None or content is None:
            continue
        trainer = read_status(content, check.host, 0.0)
        if trainer is None:
            if content.error is None:
                yield Row(
                    "bad", check.host, file.pattern, "is no status file of trainmon_hooks", "fix `status` in the config"
                )
            continue
        others = other_switches(run, trainer)
        for kind, ours, theirs in others:
            text = f"the trainer of {run.name} does not look at it, but at {theirs or 'no ' + kind + ' switch'}"
            fix = (
                f"set {kind}_switch in the config, or TRAINMON_{kind.upper()} of the trainer, so that both are the same"
            )
            yield Row("bad", check.host, ours, clean(text), fix)
        if not others:
            yield Row("ok", check.host, file.pattern, f"the trainer of {run.name} looks at the same switches")


def _receipts(host: str, spec: Spec, output: ProbeOutput) -> Iterator[Row]:
    """The directories of receipts. Without a setting, there may be none."""
    for path in spec.receipts:
        found = output.receipts.get(path)
        why = "does not answer" if found is None else found.error
        is_missing = why is not None and why.startswith("does not exist")
        if is_missing and path:
            yield Row("note", host, path, why or "", "trainmon-run creates it when it first runs with --receipts")
        elif why is not None and not is_missing:
            subject = path or "receipts of trainmon-run"
            yield Row("bad", host, subject, f"cannot be read: {why}", "ask for r and x permission")
        elif path:
            yield Row("ok", host, path, "receipts can be read")


def check_quotas(host: str, shell: Shell, queries: Sequence[QuotaQuery]) -> Iterator[Row]:
    """The rows of every quota that is read on a host."""
    for query in queries:
        what = f"quota {query.path}"
        if query.parser == "du":
            text = "not tested: du reads the whole tree; the monitor runs it every 6h at most"
            yield Row("note", host, what, text)
            continue
        try:
            quota = run_query(query, shell, SystemClock(), "", QUOTA_TIMEOUT)
        except TrainmonError as error:
            yield Row(
                "bad",
                host,
                what,
                error.message,
                error.hint or "run its command on that host, and fix `quota` in the config",
            )
            continue
        if quota.trouble is not None:
            yield Row("note", host, what, quota.trouble)
        if not quota.allowances:
            yield Row("note", host, what, "no quota is set")
        for one in quota.allowances:
            limit = "no limit" if one.hard_bytes is None else f"limit {size(one.hard_bytes)}"
            text = f"{one.owner}: {size(one.used_bytes)} used, {limit}"
            if one.used_inodes is not None:
                files = "no limit" if one.hard_inodes is None else f"limit {one.hard_inodes:,}"
                text += f"; {one.used_inodes:,} files, {files}"
            yield Row("ok", host, what, text)
