"""What `check` looks at on one host: its name, connection, key, login, probe and GPUs, and each path of the config."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from collectors.nodes.backoff import NEEDS_A_JOB, requires_job
from collectors.quota.command import QuotaQuery
from trainmon.cli.check.files import Tested, look_at_files
from trainmon.cli.check.probe import Round, one_round
from trainmon.cli.check.quota import look_at_quotas
from trainmon.cli.check.row import Row
from trainmon.cli.check.slurm import Slurm, check_slurm
from trainmon.lib import HostKeyRefused, HostUnreachable, LoginNeeded, LoginRefused, Seconds, TrainmonError
from trainmon.model import Spec
from trainmon.transport.shell import Shell
from trainmon.transport.ssh.config import HostSettings, openssh_settings

PROBE_TIMEOUT: Seconds = 20.0
"""A cold Python on a loaded node has taken 8 s to start; nvmlInit on eight GPUs without persistence as long."""

RESOLVE_TIMEOUT: Seconds = 10.0
SKEW: Seconds = 5.0


class Wanted(NamedTuple):
    """What one host is asked for."""

    host: str
    cluster: str
    python: str
    spec: Spec | None
    """None: its scheduler alone is asked."""
    files: tuple[Tested, ...] = ()
    slurm: Slurm | None = None
    ssh_config: Path | None = None
    quotas: tuple[QuotaQuery, ...] = ()


def check_host(wanted: Wanted, dial: Callable[[], Shell], *, is_here: bool) -> Iterator[Row]:
    """Every step of the way to one host; ends at the first that fails, because the next ones need it."""
    host = wanted.host
    if not is_here:
        found = _resolved(wanted)
        yield from found
        if found[-1].mark == "bad":
            return
    try:
        shell = dial()
    except TrainmonError as error:
        yield from _not_connected(host, error)
        return
    try:
        if not is_here:
            yield from _connected(host, shell)
        if wanted.spec is not None:
            yield from _probed(wanted, wanted.spec, shell)
        yield from look_at_files(host, shell, wanted.files)
        yield from look_at_quotas(host, shell, wanted.quotas)
        if wanted.slurm is not None:
            yield from check_slurm(host, wanted.slurm, shell)
    finally:
        shell.close()


def _resolved(wanted: Wanted) -> list[Row]:
    host = wanted.host
    user, _, name = host.rpartition("@")
    try:
        settings = openssh_settings(name, wanted.ssh_config, user=user or None)
    except TrainmonError as error:
        return [Row("bad", host, "settings", error.message, error.hint)]
    return [*_agent(host, settings), _way(host, settings)]


def _agent(host: str, settings: HostSettings) -> Iterator[Row]:
    """An agent that ssh's config names may be one that is always there, or that of a login session."""
    if settings.identity_agent not in (None, os.environ.get("SSH_AUTH_SOCK")):
        words = f"counts on the agent at {settings.identity_agent}, which must be there when nobody is logged in"
        yield Row(
            "note", host, "agent", words, "for --alerts-only give it a key file without a passphrase, IdentityFile"
        )


def _way(host: str, settings: HostSettings) -> Row:
    if settings.proxy_jump or settings.proxy_command:
        way = f"through {' and '.join(settings.proxy_jump)}" if settings.proxy_jump else "through a ProxyCommand"
        return Row("ok", host, "name", f"{settings.hostname}, {way}")
    return _looked_up(host, settings)


def _looked_up(host: str, settings: HostSettings) -> Row:
    """The name's address. A resolver may hang for minutes: it is asked on a thread that is left behind."""
    answer: list[str | OSError] = []

    def ask() -> None:
        try:
            answer.append(str(socket.getaddrinfo(settings.hostname, settings.port, type=socket.SOCK_STREAM)[0][4][0]))
        except OSError as error:
            answer.append(error)

    thread = threading.Thread(target=ask, name=f"resolve {host}", daemon=True)
    thread.start()
    thread.join(RESOLVE_TIMEOUT)
    if answer and isinstance(answer[0], str):
        return Row("ok", host, "name", f"{settings.hostname} is {answer[0]}")
    why = answer[0].strerror if answer and isinstance(answer[0], OSError) else f"no answer in {RESOLVE_TIMEOUT:g} s"
    mend = f"set HostName for {host} in ~/.ssh/config, or mend the name in the config"
    return Row("bad", host, "name", f"{settings.hostname} has no address: {why}", mend)


def _not_connected(host: str, error: TrainmonError) -> Iterator[Row]:
    step = "connection"
    if requires_job(error):
        yield Row("ok", host, "connection", "answers")
        yield Row("note", host, "login", f"{NEEDS_A_JOB}: it is watched while one of yours does")
        return
    if isinstance(error, HostKeyRefused | LoginRefused | LoginNeeded):
        yield Row("ok", host, "connection", "answers")
        step = "host key"
    if isinstance(error, LoginRefused | LoginNeeded):
        yield Row("ok", host, "host key", "known")
        step = "login"
    mend = error.hint or (f"try: ssh {host}" if isinstance(error, HostUnreachable) else "")
    yield Row("bad", host, step, error.message, mend)


def _connected(host: str, shell: Shell) -> Iterator[Row]:
    yield Row("ok", host, "connection", "answers")
    yield Row("ok", host, "host key", "known")
    if shell.prompted:
        words = "a person had to answer: after a lost connection, the dashboard waits for one again"
        yield Row("note", host, "login", words)
    else:
        yield Row("ok", host, "login", "nobody was asked anything")


def _probed(wanted: Wanted, spec: Spec, shell: Shell) -> Iterator[Row]:
    host = wanted.host
    started = time.time()
    try:
        heard = one_round(shell, spec, wanted.python, PROBE_TIMEOUT)
    except TrainmonError as error:
        yield Row("bad", host, "probe", error.message, error.hint)
        return
    for part, text in heard.troubles.items():
        yield Row("bad", host, part, text)
    hello = heard.hello
    if hello is None:
        why = heard.end or f"said nothing in {PROBE_TIMEOUT:g} s"
        mend = f"try: ssh {host} {wanted.python} -V; a login script must print nothing when there is no terminal"
        yield Row("bad", host, "probe", f"{why}: {heard.stderr}" if heard.stderr else why, mend)
        return
    told = [hello.probe, hello.python and f"Python {hello.python}", hello.driver and f"driver {hello.driver}"]
    yield Row("ok", host, "probe", ", ".join(part for part in told if part))
    if hello.note:
        yield Row("note", host, "probe", hello.note)
    skew = hello.t - time.time() if hello.t > time.time() else min(0.0, hello.t - started)
    if abs(skew) > SKEW:
        words = f"{abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} ours; ages are told by our own clock"
        yield Row("note", host, "clock", words)
    yield from _gpus(host, heard)
    yield from _files(host, spec, heard)


def _gpus(host: str, heard: Round) -> Iterator[Row]:
    facts = heard.facts.g if heard.facts else ()
    samples = heard.gpus.g if heard.gpus else ()
    expected = heard.facts.expected if heard.facts else None
    if not facts and not samples and not expected:
        yield Row("note", host, "GPUs", "none here")
        return
    for gpu in samples:
        if gpu.error or gpu.lost:
            yield Row("bad", host, f"GPU {gpu.index}", gpu.error or "lost", "nvidia-smi -q there says more")
    count = len(samples) or len(facts)
    name = next((gpu.name for gpu in facts if gpu.name), "unknown model")
    if expected is not None and expected > count:
        mend = "dmesg there may show an Xid; a reset or a reboot brings it back"
        yield Row("bad", host, "GPUs", f"{count} of {expected} × {name}", mend)
    else:
        yield Row("ok", host, "GPUs", f"{count} × {name}")


def _files(host: str, spec: Spec, heard: Round) -> Iterator[Row]:
    """Disks, logs and switches as the probe sees them."""
    for path in spec.disks:
        disk = heard.disks.get(path)
        if disk is None or disk.state == "hung":
            yield Row("bad", host, path, "does not answer", f"its server may be down: `df {path}` hangs there too")
        elif disk.state == "error":
            yield Row("bad", host, path, disk.error or "cannot be looked at", "mend the path in the config")
        else:
            yield Row("ok", host, path, f"{disk.filesystem or 'a disk'} at {disk.mount or path}")
    if heard.hello is not None and heard.hello.python is None:
        for path in (*(log.pattern for log in spec.logs), *spec.switches):
            yield Row("bad", host, path, "not read without python3", "install it there, or name one: [cluster] python")
        return
    for log in spec.logs:
        chunk = heard.logs.get(log.id)
        if chunk is None or chunk.path is None or chunk.error:
            why = (chunk.error if chunk else None) or "no such file"
            yield Row("bad", host, log.pattern, why, f"start the run {log.id}, or mend its `log` in the config")
        else:
            yield Row("ok", host, log.pattern, f"followed: {chunk.path}")
    for path in spec.switches:
        switch = heard.switches.get(path)
        if switch is None or switch.error or switch.exists is None:
            why = (switch.error if switch else None) or "cannot be looked at"
            yield Row("bad", host, path, why, "its directory must be there and searchable")
        else:
            yield Row("ok", host, path, "armed" if switch.exists else "not armed")
