"""The rows of what the sources have read: hosts and their files, quotas, Slurm, Prometheus, W&B."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from posixpath import dirname
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from collectors.assignment import WatchPlan, assign, rivals
from collectors.connections import is_local
from collectors.nodes.collector import NEEDS_A_JOB, NEEDS_A_STEP, requires_job
from collectors.nodes.steps import StepShell
from collectors.quota import QuotaQuery, quota_query
from collectors.slurm.collector import Poller
from collectors.wandb.child_process import WandbError
from collectors.wandb.login import find_credentials
from collectors.wandb.wire import Viewer
from trainmon.analysis.checkpoints import is_eval_log, read_results
from trainmon.analysis.log_formats import EXAMPLE, LogReport, config_block, report, suggested, summary
from trainmon.analysis.runs import holds_nodes, jobs_of, other_switches, present, read_status, status_file
from trainmon.analysis.wandb import active_run, client_file
from trainmon.cli.check.watch import LATE, TIMEOUT, Readings, Row, Watch, facts, in_parallel, reported
from trainmon.config import ClusterSettings, log_formats, run_specs
from trainmon.lib import (
    HostKeyRefused,
    HostUnreachable,
    Instant,
    LoginNeeded,
    LoginRefused,
    Seconds,
    TrainmonError,
    ago,
    clean,
    counted,
    duration,
    group_by,
    listed,
    size,
)
from trainmon.lib.threads import DeadlineExceeded, DeadlineRunner
from trainmon.model import (
    ON_NODE,
    DiskSample,
    FileContent,
    Hello,
    Job,
    LogChunk,
    Node,
    Receipts,
    RunSpec,
    Source,
    Spec,
    State,
    SwitchSample,
    Trainer,
    Wandb,
    WandbDirectory,
    WandbRows,
    WandbSpec,
    says,
)
from trainmon.slurm import batch_script, commands, errors
from trainmon.slurm.client import Client, SlurmFailed
from trainmon.transport.shell import Shell
from trainmon.transport.ssh.client import addresses
from trainmon.transport.ssh.config import HostSettings, Route, openssh_settings, route_to
from trainmon.transport.ssh.openssh import OpensshShell, has_ticket, login_advice

if TYPE_CHECKING:  # it loads an HTTP client, which a config without metrics does not need
    from collectors.prometheus.collector import TablePoller

# ---- the hosts -------------------------------------------------------------------------------------------------------


def host_rows(watch: Watch) -> Iterator[list[Row]]:
    """The rows of each host, in the order of the config; after them those of the nodes that the runs' jobs are on, and
    those of the logs that no host has and of the log formats of the config."""
    logs = Logs(watch)
    for cluster in watch.settings.clusters:
        rows = ClusterCheck(watch, cluster, logs).rows()
        yield from filter(None, rows)  # a machine that is only queried for Slurm, and has none, has no rows
    yield from filter(None, [[*filter(None, logs.missing.values()), *logs.format_rows()]])


class ClusterCheck:
    """The checks of the hosts of one cluster."""

    def __init__(self, watch: Watch, cluster: ClusterSettings, logs: Logs) -> None:
        self._watch, self._cluster, self._logs = watch, cluster, logs
        self._queue = watch.sources.queues.get(cluster.name)
        self._runs = tuple(run for run in run_specs(watch.settings) if run.cluster == cluster.name)

    def rows(self) -> Iterator[list[Row]]:
        """First the hosts of the config that need no step of a job: the first reads the shared files, and the login
        host or this machine queries its Slurm. Then those that a step may reach, and the nodes of the runs' jobs that
        the config does not name."""
        first = [host for host in self._plan.hosts if self._way(host) in ("here", "ssh")]
        yield from self._of_hosts(first)
        if self._queue is not None and self._queue.watched.login not in self._plan.hosts:
            yield [*slurm_rows(self._watch, self._queue, self._runs)]
            self._queue = None  # told, also if its host is read from now on, for a job that was found
        yield from self._of_hosts([host for host in self._plan.hosts if host not in first])

    @property
    def _plan(self) -> WatchPlan:
        """What is read now, of the runs of the config."""
        plan = next(one for one in self._watch.sources.plans if one.cluster == self._cluster.name)
        return replace(plan, runs=self._runs, candidates=())

    def _way(self, host: str) -> str:
        """How a host is reached: here, ssh, srun, or auto, which is one of these two."""
        if self._watch.sources.connections[self._cluster.name].may_use_step(host, is_node=host in self._plan.nodes):
            return self._cluster.connect.by
        return "here" if is_local(self._cluster, host) else "ssh"

    def _of_hosts(self, hosts: Sequence[str]) -> Iterator[list[Row]]:
        plan = self._plan
        specs = {host: spec for host, spec in assign((plan,), plan.hosts)[0].items() if host in hosts}
        ways = {host: self._way(host) for host in hosts}
        config, at_once = self._watch.ssh_config, self._cluster.connect.at_once
        names = [(Row("bad", host, "name", LATE), name_rows(host, ways[host], config)) for host in hosts]
        for host, found in zip(hosts, in_parallel(names, at_once, TIMEOUT), strict=True):
            if ways[host] == "auto":  # its name need not lead to it
                found = [row._replace(mark="note") if row.mark == "bad" else row for row in found]
            if not found or found[-1].mark != "bad":
                found += reported(host, "check", self._host(plan, host, specs, ways[host]))
            yield found

    def _host(self, plan: WatchPlan, host: str, specs: dict[str, Spec], way: str) -> Iterator[Row]:
        """The steps to one host. They end at the first failure, because the next steps need it."""
        watch, failure, spec = self._watch, self._watch.reach(host, specs), specs[host]
        shell = watch.sources.nodes[host].reached
        yield from reached_rows(host, way, shell, watch.ssh_config)
        if failure is not None:
            yield from failed_rows(host, way if shell is None else "probe", failure)
            if isinstance(failure, LoginNeeded | LoginRefused):
                yield from openssh_rows(host, self._cluster.connect.by, failure, watch.ssh_config)
            return
        readings = watch.readings[host]
        yield from probe_rows(watch.monitor.engine.state.nodes[host], spec, readings)
        # the row of its disk names a missing directory, so the rows of the switches in it do not
        missing = {path for (kind, path), one in readings.items() if kind is DiskSample and one.state == "error"}
        if readings[Hello, ""].python is not None:
            yield from self._logs.rows(host, spec, readings, self._runs)
            files = file_rows(host, spec, readings, self._runs)
            yield from (row for row in files if dirname(row.what) not in missing)
        if host == plan.hosts[0]:
            tests = (test for test in path_tests(self._runs, plan.shared_disks) if test[0] not in missing)
            yield from path_rows(host, watch.sources.shell_of(host), tests)
        queries = [quota_query(disk, self._cluster) for disk in watch.settings.disks if disk.path in spec.disks]
        for query in filter(None, queries):
            yield from quota_rows(watch, host, query)
        if self._queue is not None and host == self._queue.watched.login:
            yield from slurm_rows(watch, self._queue, self._runs)


# ---- how a host is reached -------------------------------------------------------------------------------------------

RESOLVE_TIMEOUT: Seconds = 10.0

KEY_OF_TOKEN = 'set connect.by = "openssh"; if it asks for a PIN, open a master connection'

STEPS = {"connection": "answers", "host key": "known", "login": "no prompt"}
"""The steps to a host over SSH."""

KEY_FILE = "give the daemon a key file without a passphrase: IdentityFile in ~/.ssh/config"

INTERACTIVE = "needs an interactive login: the dashboard prompts you; the daemon cannot log in"


def name_rows(host: str, way: str, ssh_config: Path | None) -> Iterator[Row]:
    """The settings of ssh's config for the name, and its address."""
    if way not in ("ssh", "auto"):
        return
    user, _, name = host.rpartition("@")
    settings = openssh_settings(name, ssh_config, user=user or None)
    if settings.identity_agent not in (None, os.environ.get("SSH_AUTH_SOCK")):
        text = f"uses the SSH agent at {settings.identity_agent}: the daemon needs it even when nobody is logged in"
        yield Row("note", host, "agent", text, f"or {KEY_FILE}")
    through = " and ".join(settings.proxy_jump) or (settings.proxy_command and "a ProxyCommand")
    named = Row("ok", host, "name", f"{settings.hostname}, through {through}")
    yield named if through else address_row(host, settings)


def address_row(host: str, settings: HostSettings) -> Row:
    """The address of the name, resolved on a thread: a resolver may hang for minutes."""
    resolver: DeadlineRunner[Any] = DeadlineRunner(f"resolve {host}")
    try:
        found = resolver.call(partial(addresses, settings), RESOLVE_TIMEOUT)
        return Row("ok", host, "name", f"{settings.hostname} resolves to {found[0][4][0]}")
    except OSError as error:
        why, is_dns = str(error.strerror), error.errno == socket.EAI_AGAIN
    except DeadlineExceeded:
        why, is_dns = f"no answer within {RESOLVE_TIMEOUT:g}s", True
    fix = "check the DNS of this machine" if is_dns else "correct the name in the config, or HostName in ~/.ssh/config"
    text = f"{settings.hostname} cannot be resolved: {why}"
    return Row("bad", host, "name", text, f"{fix}; try: getent hosts {settings.hostname}")


def reached_rows(host: str, way: str, shell: Shell | None, ssh_config: Path | None) -> Iterator[Row]:
    """The steps to a host that answers."""
    if isinstance(shell, StepShell):
        refuses = "; the node refuses SSH" if way == "auto" else ""
        yield Row("ok", host, "srun", f"a step of job {shell.part.job}, named {commands.OWN_STEP}{refuses}")
    elif shell is not None and way != "here":
        login = Row("ok", host, "login", shell.way if isinstance(shell, OpensshShell) else STEPS["login"])
        if shell.prompted:
            login = Row("note", host, "login", INTERACTIVE, master_fix(route_to(host, ssh_config), ssh_config))
        yield from (login if step == "login" else Row("ok", host, step, text) for step, text in STEPS.items())


def failed_rows(host: str, way: str, error: TrainmonError) -> Iterator[Row]:
    """The steps to a host up to the one that has failed."""
    step, needs, fix = way, NEEDS_A_STEP, f"try: srun --overlap -w {host} hostname"
    if way in ("ssh", "auto"):
        is_login = isinstance(error, LoginRefused | LoginNeeded) or requires_job(error)
        step = "login" if is_login else "host key" if isinstance(error, HostKeyRefused) else "connection"
        needs, fix = NEEDS_A_JOB, f"try: ssh {host}"
        before = [*STEPS.items()][: [*STEPS].index(step)]
        yield from (Row("ok", host, one, text) for one, text in before)
    if way != "probe" and requires_job(error):
        yield Row("note", host, step, f"{needs}: the node is watched only while one of your jobs runs there")
    else:
        yield Row("bad", host, step, error.message, error.hint or fix)


MASTER = "set ControlMaster auto, ControlPath ~/.ssh/%C and ControlPersist 8h in ~/.ssh/config, then: ssh {}"

ASKS = ("interactive", "gssapi", "unknown key format")
"""Words of refusals by hosts that `ssh` may log in to."""


def openssh_rows(host: str, by: str, error: HostUnreachable, ssh_config: Path | None) -> Iterator[Row]:
    """How OpenSSH's `ssh` could log in to a host that refuses our client."""
    route = route_to(host, ssh_config)
    uses_kerberos = any(stop.gssapi for stop in route)
    is_offered = "gssapi" in error.message or (uses_kerberos and shutil.which("klist"))
    kerberos = "a Kerberos ticket may log in" if is_offered and not has_ticket() else ""
    enable = "" if uses_kerberos else "set GSSAPIAuthentication yes in ~/.ssh/config, then: "
    token = next((stop.provider for stop in route if stop.provider), None)
    asks = isinstance(error, LoginNeeded) or any(word in error.message for word in ASKS)
    asks = asks or bool(login_advice(route, ssh_config))  # where a person has set it up, it may be the only way
    master = "an open master connection of ssh logs in without a prompt" if asks and not error.waits_for_person else ""
    never = (
        f'{error.host} is never logged in to by the ssh command: connect.by = "paramiko"' if by == "paramiko" else ""
    )
    yield from facts(
        host,
        ("note", "openssh", never, 'set connect.by = "ssh"'),
        ("note", "openssh", f"only the ssh command uses the keys of {token}" if token else "", KEY_OF_TOKEN),
        ("note", "openssh", kerberos, f"{enable}kinit"),
        ("note", "openssh", master, master_fix(route, ssh_config)),
    )


def master_fix(route: Route, ssh_config: Path | None) -> str:
    """How to open a master connection."""
    return login_advice(route, ssh_config) or MASTER.format(route[-1].name)


# ---- what its probe has read -----------------------------------------------------------------------------------------

SKEW: Seconds = 5.0

LOST_GPUS = "dmesg there may show an Xid; reset the GPU or reboot the node"


def probe_rows(node: Node, spec: Spec, readings: Readings) -> Iterator[Row]:
    """The rows of a node whose probe works: versions, clock, GPUs and disks."""
    host, python, skew = node.name, readings[Hello, ""].python, node.clock_skew_s or 0.0
    driver = "no GPU driver" if node.probe == "none" else node.probe
    versions = filter(None, (driver, python and f"Python {python}", node.driver and f"driver {node.driver}"))
    clock = f"{abs(skew):.0f}s {'ahead of' if skew > 0 else 'behind'} the local clock; all ages use the local clock"
    count, expected = len(node.gpus), node.gpus_expected or 0
    name = next((gpu.name for gpu in node.gpus if gpu.name), "unknown model")
    troubles = {part: text for part, text in node.troubles.items() if part != "xid"}  # that may be of minutes ago
    yield from (Row("bad", host, part, text) for part, text in troubles.items())
    yield from facts(
        host,
        ("ok", "probe", ", ".join(versions), ""),
        ("note", "probe", node.note, ""),
        ("note", "clock", clock if abs(skew) > SKEW else "", ""),
        *(("bad", f"GPU {gpu.index}", gpu.error, "run nvidia-smi -q there for details") for gpu in node.gpus),
        ("bad", "GPUs", f"{count} of {expected} × {name}" if expected > count else "", LOST_GPUS),
        ("ok", "GPUs", f"{count} × {name}" if count and expected <= count else "", ""),
        ("note", "GPUs", "" if count or expected else "none", ""),
    )
    yield from (disk_row(host, path, readings.get((DiskSample, path))) for path in spec.disks)
    if python is None:
        logs = (log.pattern for log in spec.logs if not log.local)
        for path in (*logs, *spec.switches, *(one.directory for one in spec.wandb)):
            yield Row("bad", host, path, "needs python3", "install it there, or set `python` of the [[cluster]]")


def disk_row(host: str, path: str, disk: DiskSample | None) -> Row:
    """The row of one watched disk."""
    if disk is None or disk.state == "hung":
        fix = f"its file server may be down; if so, `df {path}` on {host} hangs as well"
        return Row("bad", host, path, "does not answer", fix)
    if disk.state == "error":
        return Row("bad", host, path, disk.error or "cannot be read", "create it, or fix the path in the config")
    return Row("ok", host, path, f"{disk.filesystem or 'a disk'} at {disk.mount or path}")


def file_rows(host: str, spec: Spec, readings: Readings, runs: Sequence[RunSpec]) -> Iterator[Row]:
    """Switches, receipts and the files of W&B's client; and whether the trainers look at the same switches, as their
    status files say. Without such a file there is no row: few trainers have trainmon_hooks."""
    for path in spec.switches:
        switch: SwitchSample | None = readings.get((SwitchSample, path))
        if switch is None or switch.error or switch.exists is None:
            why = "cannot be read" if switch is None else switch.error or "cannot be read"
            fix = "its directory must exist, and you need x permission on it"
            yield Row("bad", host, path, why, "remove the link" if says(why, "dangling") else fix)
        else:
            yield Row("ok", host, path, "armed" if switch.exists else "not armed")
    for run in runs:
        file = status_file(run)
        content: FileContent | None = None if file is None else readings.get((FileContent, file.id))
        if file is not None and content is not None and content.error is None:
            yield from trainer_rows(host, run, file.pattern, read_status(content, host, 0.0))
    for path in spec.receipts:  # without a setting, the path is empty, and there may be none
        found: Receipts | None = readings.get((Receipts, path))
        error, what = "does not answer" if found is None else found.error, path or "receipts of trainmon-run"
        if error is None or says(error, "missing"):
            text, fix = error or "receipts can be read", "trainmon-run creates it when it first runs with --receipts"
            yield from facts(host, ("note" if error else "ok", what, path and text, fix if error else ""))
        else:
            yield Row("bad", host, what, f"cannot be read: {error}", "ask for r and x permission")
    yield from (client_file_row(host, one, readings.get((WandbRows, one.id))) for one in spec.wandb)


def trainer_rows(host: str, run: RunSpec, file: str, trainer: Trainer | None) -> Iterator[Row]:
    """Whether the trainer of a run looks at the switches of the config, as its status file says."""
    others = [] if trainer is None else other_switches(run, trainer)
    for kind, ours, theirs in others:
        text = f"the trainer of {run.name} does not look at it, but at {theirs or f'no {kind} switch'}"
        fix = f"set {kind}_switch in the config, or TRAINMON_{kind.upper()} of the trainer, so that both are the same"
        yield Row("bad", host, ours, clean(text), fix)
    if trainer is None:
        yield Row("bad", host, file, "is no status file of trainmon_hooks", "fix `status` in the config")
    elif not others:
        yield Row("ok", host, file, f"the trainer of {run.name} looks at the same switches")


def client_file_row(host: str, wanted: WandbDirectory, found: WandbRows | None) -> Row:
    """What was found in the directory of a W&B client. Before the first run it may not exist."""
    where, what = wanted.directory, f"{found.format if found else 'W&B'} files of {wanted.id}"
    if found is None:
        return Row("bad", host, what, f"{where} does not answer", "its file server may be down")
    if found.error is not None or found.path is None:
        why = clean(found.error or f"{where}: no file")
        fix = f"start the run {wanted.id}, or fix `wandb_dir` or `metrics_dir` in the config"
        return Row("bad" if found.path else "note", host, what, why, fix)
    rows = f"{counted(found.rows, 'row')} in the first {size(found.offset)} of {size(found.size)}"
    damaged = f", {counted(found.damaged, 'damaged part')} skipped" if found.damaged else ""
    is_old = found.mtime is not None and found.t - found.mtime >= client_file.QUIET
    cut = ", ends in an incomplete record" if found.tail and is_old else ""
    curves = f", {counted(len(client_file.points_of(found)), 'curve')}"
    return Row("ok", host, what, clean(f"{found.path}: {rows}{curves}{damaged}{cut}"))


# ---- logs, on all hosts ----------------------------------------------------------------------------------------------


class Logs:
    """What was read in the log of each run, on all hosts."""

    def __init__(self, watch: Watch) -> None:
        self._formats = log_formats(watch.settings)
        self._count = sum(run.log is not None for run in watch.settings.runs)
        self._read: dict[str, LogReport] = {}
        self.missing: dict[str, Row | None] = {}
        """The row of each log that the first host misses; None where a host follows it, such as a node of the run."""

    def rows(self, host: str, spec: Spec, readings: Readings, runs: Sequence[RunSpec]) -> Iterator[Row]:
        """The logs of the runs and of their evaluations that a host reads."""
        shared, chunks = rivals(runs), {name: part for (kind, name), part in readings.items() if kind is LogChunk}
        for log in spec.logs:
            run, chunk = log.id.removeprefix(ON_NODE), chunks.get(log.id, LogChunk(1, 0.0, log.id))
            if log.id in shared and not log.local:
                others = ", ".join(one.name for one in shared[log.id])
                text = f"may also match logs of {others}, which are not read for {run}"
                yield Row(
                    "note", host, log.pattern, text, f"correct the `log` of {run}, so that it matches its own only"
                )
            if log.optional and chunk.path is None and not chunk.error:
                continue
            why = chunk.error or ("no such file" if chunk.path is None else "")
            if why and is_eval_log(log.id):
                fix = "the first evaluation creates it; else fix `results` of [[eval]]"
                yield Row("note", host, log.pattern, why, fix)
            elif why:
                fix = f"start the run {run}, or fix its `log` in the config"
                self.missing.setdefault(run, Row("bad", host, log.pattern, why, fix))
            elif is_eval_log(log.id):
                results, invalid = read_results(chunk.lines)
                text = f"{counted(len(results), 'result')} in its last {counted(len(chunk.lines), 'line')}"
                fix = "docs/how-to/evaluators.md has the format of its lines" if invalid else ""
                yield Row("bad" if invalid else "ok", host, log.pattern, text, fix)
            else:
                names = {name.removeprefix(ON_NODE) for name, other in chunks.items() if other.path == chunk.path}
                also = f", also for {', '.join(sorted(names - {run}))}" if names - {run} else ""
                fix = "give each run a `log` of its own" if also else ""
                yield Row("note" if also else "ok", host, log.pattern, f"followed: {chunk.path}{also}", fix)
                yield self._log_row(host, run, chunk)

    def _log_row(self, host: str, run: str, chunk: LogChunk) -> Row:
        """The format of a log with its last step, or a format to start from."""
        what, read = f"log of {run}", report((*chunk.kept, *chunk.lines), self._formats, partial=chunk.partial)
        count, progress = len(read.lines), read.progress
        self.missing[run] = None
        if not count:
            return Row("note", host, what, "empty so far: its format is not known yet")
        self._read[run] = read
        if progress.step is None and progress.epoch is None:
            template = _template(read)
            how = "" if template else ", with a step line of the log as its template"
            fix = f"if training has begun, add this to the config{how}; `trainmon-tui log-format {run}` shows the lines"
            text = f"no step in its last {counted(count, 'line')}"
            return Row("bad", host, what, text, f"{fix}\n{config_block(run, template or EXAMPLE)}")
        step = f"epoch {progress.epoch:g}" if progress.step is None else f"step {progress.step:,}"
        target = "" if progress.step is None or progress.target_step is None else f" of {progress.target_step:,}"
        return Row("ok", host, what, f"{step}{target}, format {summary(progress, read.shape, count)}")

    def format_rows(self) -> Iterator[Row]:
        """Whether each format of the config matches a line of some log."""
        for one in self._formats:
            matched = [run for run, log in self._read.items() if any(one.parse(line.text) for line in log.lines)]
            if matched:
                yield Row("ok", "log_format", one.name, f"matches lines of {', '.join(matched)}")
            elif not self._read:
                yield Row("note", "log_format", one.name, "not tested: no log has lines to read")
            else:
                run, log = min(self._read.items(), key=lambda pair: pair[1].steps > 0)
                block = config_block(one.name, _template(log) or EXAMPLE)
                unread = self._count - len(self._read)
                others = f"; not read or empty: {counted(unread, 'log')}" if unread > 0 else ""
                text = f"matches no line of {counted(len(self._read), 'log')}{others}"
                fix = f"remove it or correct it; for the log of {run}:\n{block}"
                yield Row("note" if others else "bad", "log_format", one.name, text, fix)


def _template(read: LogReport) -> str | None:
    """The format of a log, or what it may be."""
    return read.template or suggested(one.text for one in read.lines)


# ---- the paths of the config, and quotas -----------------------------------------------------------------------------

PATH_TIMEOUT: Seconds = 5.0

PathTest = tuple[str, str, str, str, str]
"""A path, the flag of test(1) that it must pass, the texts of both results, and the fix."""


def path_tests(runs: Sequence[RunSpec], shared: Sequence[str]) -> Iterator[PathTest]:
    """The tests of the runs' files, and of the paths whose disks are watched."""
    readable, fix = ("-r", "readable", "missing or not readable"), "create it, or ask for read permission"
    yield from ((path, *readable, fix) for path in shared)
    for run in runs:
        if run.script is not None:
            yield (run.script, *readable, f"fix the `script` of run {run.name} in the config")
        if run.checkpoints is not None:
            fix = "create it, or ask for r and x permission"
            yield run.checkpoints, "-d", "a directory", "missing or not a directory", fix
            yield run.checkpoints, "-r", "can be listed", "cannot be listed (no r permission)", fix
            yield run.checkpoints, "-x", "can be entered", "cannot be entered (no x permission)", fix
    folders = [dirname(path) or "/" for run in runs for path in (run.kill_switch, run.save_switch) if path is not None]
    fix = "create it, or ask for write permission: the actions save and kill need it"
    yield from ((path, "-w", "switches can be created", "missing or not writable", fix) for path in folders)


def path_rows(host: str, shell: Shell, tests: Iterable[PathTest]) -> Iterator[Row]:
    """One row per path: the first test that fails, or the last one."""
    for path, own in group_by(dict.fromkeys(tests), lambda test: test[0]).items():
        yield from reported(host, path, _tested(host, shell, own))


def _tested(host: str, shell: Shell, tests: Sequence[PathTest]) -> Iterator[Row]:
    for path, flag, _, bad, fix in tests:
        if shell.run(["test", flag, path], timeout=PATH_TIMEOUT).status:
            yield Row("bad", host, path, bad, fix)
            return
    yield Row("ok", host, tests[-1][0], tests[-1][2])


def quota_rows(watch: Watch, host: str, query: QuotaQuery) -> Iterator[Row]:
    """The rows of one quota."""
    key, what = f"{query.cluster if query.shared else host}:{query.path}", f"quota {query.path}"
    if query.parser == "du":
        yield Row(
            "note", host, what, "not tested: du reads the whole tree; it runs in the background, every 6h at most"
        )
        return
    if query in watch.hung:
        yield Row("note", host, what, f"not tested: {query.command[0]} failed slowly on another host")
        return
    began, source = time.monotonic(), watch.answers(f"quota:{key}")
    quota = watch.monitor.engine.state.quotas.get(key)
    if quota is None:
        watch.hung |= {query} if time.monotonic() - began > query.time_limit / 5 else set()
        fix = "run its command on that host, and fix `quota` in the config"
        yield Row("bad", host, what, source.error or LATE, source.hint or fix)
        return
    unset = "" if quota.allowances else "no quota is set"
    yield from facts(host, ("note", what, quota.trouble, ""), ("note", what, unset, ""))
    for one in quota.allowances:
        limit = "no limit" if one.hard_bytes is None else f"limit {size(one.hard_bytes)}"
        text = f"{one.owner}: {size(one.used_bytes)} used, {limit}"
        if one.used_inodes is not None:
            files = "no limit" if one.hard_inodes is None else f"limit {one.hard_inodes:,}"
            text += f"; {one.used_inodes:,} files, {files}"
        yield Row("ok", host, what, text)


# ---- Slurm -----------------------------------------------------------------------------------------------------------

FIXES = {
    "munge": "check on that host that munge runs and the clock is right: munge -n | unmunge",
    "configuration": "set SLURM_CONF in your profile on that host, or fix `login` in the config",
    "silent": "run scontrol ping on that host: it shows whether slurmctld answers",
    "absent": "set `login` to a host that has Slurm's commands, or remove `users`, `spares`, `job` and `script`",
}

SCRIPTS = 20
"""Batch scripts that are read at most, each with two commands."""


def slurm_rows(watch: Watch, poller: Poller, runs: Sequence[RunSpec]) -> Iterator[Row]:
    """The rows of one Slurm and of the jobs of its cluster's runs."""
    host, watched = poller.watched.login, poller.watched

    def is_polled(state: State) -> bool:
        known = [one for one in state.clusters.values() if one.name == watched.cluster]
        return any(one.is_polled or poller.failure is not None for one in known)

    watch.wait_for(is_polled, TIMEOUT)
    state, client = watch.monitor.engine.state, Client(watch.sources.shell_of(host))
    cluster = state.clusters[watched.cluster]
    if not cluster.is_polled:
        failure = poller.failure or SlurmFailed(LATE, kind="silent")
        yield from silent_rows(host, failure, required=watched.required)
        return
    jobs = [job for job in state.jobs.values() if job.cluster == cluster.name and job.gone_at is None]
    running = sum(job.stage == "running" for job in jobs)
    waiting = sum(job.elements for job in jobs if job.stage == "waiting")
    whose = ", ".join(cluster.queue_users) or "yours"
    off = "off: Slurm forgets how a job ended after a few minutes (MinJobAge)"
    nodes = [node for node in state.scheduler_nodes.values() if node.cluster == cluster.name]
    idle = sum(node.state == "IDLE" and node.is_usable for node in nodes)
    spares = f"{idle} idle of {counted(len(nodes), 'node')}, {cluster.spares} wanted" if cluster.spares else ""
    yield from facts(
        host,
        ("ok", "Slurm", f"{cluster.slurm or 'unknown version'}, as user {cluster.me}", ""),
        ("ok", "queue", f"{running} running, {waiting} pending ({whose})", ""),
        ("ok", "accounting", "on: sacct shows how jobs ended" if cluster.accounting else off, ""),
        ("ok" if idle >= cluster.spares else "note", "spares", spares, ""),
    )
    runs = [replace(run, user=state.runs[run.name].spec.user) for run in runs]
    for run in runs:
        yield from reported(host, f"run {run.name}", run_rows(host, run, client.shell, jobs))
    mine = [job for job in jobs if job.user == cluster.me]
    known = {run.job or run.name for run in runs if run.user in (None, cluster.me)}
    names = dict.fromkeys(job.name for job in mine if holds_nodes(job) and job.name not in known)
    text = f"{len(names)} found in your running jobs: {', '.join(names)}" if names else ""
    yield from facts(host, ("ok", "runs", text, ""))
    newest = {job.name: job for job in reversed(mine) if job.stage != "ended"}
    for job in list(newest.values())[:SCRIPTS]:
        with contextlib.suppress(SlurmFailed):  # a job of srun has no script
            script, details = (client.run(read(str(job.number))) for read in (commands.batch_script, commands.show_job))
            yield from signal_rows(host, f"job {job.id}", script, details)


def silent_rows(host: str, failure: SlurmFailed, *, required: bool) -> Iterator[Row]:
    """The row of a Slurm without an answer. A host without Slurm is no problem when the config does not need it."""
    is_unconfigured, is_absent = errors.is_without_configuration(failure.stderr), failure.kind == "absent"
    if required or not (is_absent or is_unconfigured):
        kind = "munge" if "munge" in failure.stderr.lower() else failure.kind
        fix = FIXES["configuration"] if is_unconfigured and not is_absent else FIXES.get(kind, failure.hint)
        yield Row("bad", host, "Slurm", failure.message, fix or f"try: squeue --me on {host}")


def run_rows(host: str, run: RunSpec, shell: Shell, jobs: Sequence[Job]) -> Iterator[Row]:
    """The job of a run, and its output file, which is followed when the config names no log; or who else has one."""
    own, what = [job for job in jobs_of(run, jobs) if job.stage != "ended"], f"run {run.name}"
    if (job := present(own)) is not None:
        more = f", {len(own) - 1} more" if len(own) > 1 else ""
        yield Row("ok", host, what, f"job {job.id} is {job.state} on {counted(len(job.nodes), 'node')}{more}")
        has_log = run.log is not None or (run.wandb is not None and run.wandb.console)
        if not has_log and job.stdout is None:
            yield Row("note", host, "log", f"job {job.id} has no output file", "set the run's `log` in the config")
        elif not has_log:
            fix = f"write its output to a disk that {host} mounts, or set the run's `log` in the config"
            test = job.stdout or "", "-r", f"followed: the output of job {job.id}", "cannot be read", fix
            yield from path_rows(host, shell, [test])
        return
    if own:
        yield Row("ok", host, what, f"job {own[0].id} is pending ({own[0].reason or 'no reason'})")
        return
    name = run.job or run.name
    text, fix = f"no job named {name} is in the queue", "start the run, or fix its `job` in the config"
    if others := sorted({job.user for job in jobs if job.name == name and job.user != run.user}):
        text, fix = f"no job named {name} belongs to {run.user}, but to {', '.join(others)}", "fix the run's `user`"
    yield Row("note", host, what, text, fix)
    if run.script is not None:
        script = shell.run(("head", "-c", "1000000", "--", run.script), timeout=PATH_TIMEOUT)
        yield from signal_rows(host, run.script, script.stdout.decode("utf-8", "replace"))


def signal_rows(host: str, what: str, script: str, details: str = "") -> Iterator[Row]:
    """Whether the signal that Slurm sends before the time limit reaches the trainer."""
    if found := batch_script.unheard_signal(script, details):
        yield Row("note", host, what, found.text, found.fix)


# ---- Prometheus ------------------------------------------------------------------------------------------------------


def metrics_rows(watch: Watch) -> Iterator[Row]:
    """The rows of all metrics tables."""
    for name, poller in watch.sources.metrics.items():
        for table in poller.tables:
            source = watch.answers(table.name, may_be_off=not table.nodes())
            what = f"{name}, {table.reader.settings.exporter}"
            yield from reported("Prometheus", what, table_rows(what, source, table))


def table_rows(what: str, source: Source, table: TablePoller) -> Iterator[Row]:
    """The rows of one table, whose source has answered or failed."""
    reader, found, nodes, now = table.reader, table.found, table.nodes(), time.time()
    if source.error is not None:
        yield Row("bad", "Prometheus", what, source.error, source.hint or "")
        return
    if not nodes:  # no job of the runs is known
        label, seen = reader.label_values()
        if not seen:
            raise reader.why_empty(())
        yield Row("ok", "Prometheus", what, f"{label} has {counted(len(seen), 'value')}: {listed(seen)}")
        return
    age = duration(max(0.0, now - reader.ours(max((node.at for node in found.values()), default=now))))
    gpus = "" if reader.exporter.is_host else f" with {counted(sum(len(node.gpus) for node in found.values()), 'GPU')}"
    text = f"{counted(len(found), 'node')}{gpus}; the newest sample is {age} old"
    offset = now - reader.ours(now)
    way = "ahead of" if offset > 0 else "behind"
    clock = f"the clock of the server is {abs(offset):.0f}s {way} the clock of this machine"
    silent = [node for node, numbers in found.items() if reader.is_silent(reader.ours(numbers.at))]
    lacks = {"series": [node for node in nodes if node not in found], "new samples": silent}
    of = f"of {counted(len(nodes), 'node')} without"
    without = [f"{len(some)} {of} {lack}: {listed(some)}" for lack, some in lacks.items() if some]
    yield from facts(
        "Prometheus",
        ("note" if reader.gap else "ok", what, "; ".join(filter(None, (text, reader.note))), ""),
        ("note", what, clock if offset else "", "correct one of them: chronyc tracking"),
        *(("note", what, text, reader.scrape_hint) for text in without),
    )


# ---- W&B: the key and its user, and whether the projects and W&B runs of the config exist ----------------------------


def wandb_rows(watch: Watch) -> Iterator[Row]:
    """The rows of W&B; none when no run names a project. Nothing is asked then."""
    runs = [run for run in run_specs(watch.settings) if run.wandb is not None]
    if not runs:
        return
    sources = [watch.answers(f"wandb:{run.name}") for run in runs]
    found, state = find_credentials(), watch.monitor.engine.state
    if found.location is None:
        yield Row("bad", "W&B", "key", found.error, found.hint)
        return
    yield Row("ok", "W&B", "key", f"in {found.location}, for {found.server}")
    fix = f"try: curl -I {found.url}; is WANDB_BASE_URL right?"
    answers: SimpleQueue[Viewer | WandbError] = SimpleQueue()
    watch.monitor.wandb.ask_viewer(answers.put)
    try:
        viewer = answers.get(timeout=TIMEOUT)
    except Empty:
        viewer = WandbError(LATE, kind="slow")
    if isinstance(viewer, WandbError):
        yield Row("bad", "W&B", "server", viewer.message, viewer.hint or fix)
        return
    teams = [team for team in viewer.teams if team != viewer.user]
    of = f", of {listed(teams)}" if teams else ""
    yield Row("ok", "W&B", "server", f"{found.server} answers {viewer.user or 'a service account'}{of}")
    for run, source in zip(runs, sources, strict=True):
        wandb = state.runs[run.name].wandb
        if source.error is not None or wandb is None or run.wandb is None:
            yield Row("bad", "W&B", f"run {run.name}", source.error or LATE, source.hint or fix)
        else:
            yield wandb_run_row(f"run {run.name}", run.wandb, wandb, state.at)


def wandb_run_row(what: str, spec: WandbSpec, group: Wandb, now: Instant) -> Row:
    """Which W&B run of a run is active, judged as in the dashboard."""
    if not group.runs:
        fix = "if its W&B run has started, fix group, run, display or tags; otherwise it is found when it starts"
        return Row("note", "W&B", what, f"{spec.project} exists; {group.why}", fix)
    if len(group.active) > 1:
        return Row("note", "W&B", what, group.why, "end all but one, or add a [[run]] for each")
    text = group.why if group.active else f"none is active; {group.why}"
    silent = active_run.silent_for(group, group.current, now) if group.active and group.current is not None else None
    heartbeat = f", heartbeat {ago(silent)} ago" if silent is not None else ""
    return Row("note" if group.phase == "overdue" else "ok", "W&B", what, f"{spec.description}: {text}{heartbeat}")
