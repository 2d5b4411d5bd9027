"""How the hosts of a cluster are reached: over SSH, or by a step of a job. And the name of this machine."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from collectors.nodes.steps import JobSteps
from trainmon.config import ClusterSettings, ConnectSettings
from trainmon.lib import HostKeyRefused, HostUnreachable, LoginNeeded, LoginRefused
from trainmon.model import JobPart
from trainmon.slurm.client import Client
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import AskUser, LocalShell, Shell
from trainmon.transport.ssh.config import route_to
from trainmon.transport.ssh.openssh import OpensshDialer, may_use_kerberos, open_master

if TYPE_CHECKING:
    from trainmon.transport.ssh.client import Dialer


class Connections:
    """The connections over SSH, by our own client or by OpenSSH's `ssh`. Each is imported for its first host."""

    def __init__(self, loop: EventLoop, connect: ConnectSettings, ask: AskUser | None, ssh_config: Path | None) -> None:
        self._loop = loop
        self._connect = connect
        self._ask = ask
        self._ssh_config = ssh_config
        self._lock = threading.Lock()
        self._dialer: Dialer | None = None
        self._refused: dict[str, tuple[str, object]] = {}
        """By host or jump host that has refused our client: the master connection that is used since then. It is not
        tried again beside it."""
        self._openssh = OpensshDialer(loop, at_once=connect.at_once, timeout=connect.timeout, config_file=ssh_config)

    def dial(self, host: str) -> Shell:
        """Connect to a host. Where the login of our client is refused, `ssh` is tried if it may have another way: an
        open master connection, or Kerberos. A host key that our client refuses ends it."""
        by = "openssh" if host in self._connect.openssh else self._connect.by
        if by == "paramiko":
            return self._own().dial(host)
        return self._openssh.dial(host) if by == "openssh" else self._dial_either(host)

    def _dial_either(self, host: str) -> Shell:
        openssh, route = self._openssh, route_to(host, self._ssh_config)
        master = openssh.master_of(host, route)
        if master is None and openssh.is_awaiting(route):
            return openssh.dial(host, route)  # a prompt that nobody has asked for would be shown otherwise
        opened = None if master is None else (master.name, open_master(master))
        if opened is not None and any(self._refused.get(stop.name) == opened for stop in route):
            return openssh.dial(host, route)
        has_way = opened is not None or may_use_kerberos(route)
        silent = tuple(replace(stop, batch=stop.batch or self._ask is not None) for stop in route)
        try:
            return self._own().dial(host, silent if has_way else route)
        except HostKeyRefused:
            raise
        except HostUnreachable as error:
            # A ProxyCommand may need a person, too.
            needs_proxy = opened is not None and any(stop.proxy_command for stop in route)
            is_refused = needs_proxy or isinstance(error, LoginNeeded | LoginRefused)
            was_asked = self._ask is not None and (error.prompted or isinstance(error, LoginNeeded))
            if not is_refused or (not has_way and was_asked):
                raise
            if not has_way:
                # An open one that is not used has the ControlPath of another host.
                may_use_master = isinstance(error, LoginNeeded) or any(map(open_master, route))
                raise openssh.refused(route, error, may_use_master=may_use_master) from error
            refusal = error
        if opened is not None:
            self._refused[refusal.host] = opened
        try:
            shell = openssh.dial(host, route)
            if master is None:  # a command logs in
                shell.run(["true"], timeout=self._connect.timeout)
        except (LoginNeeded, LoginRefused) as error:
            if self._ask is not None and master is None:
                for stop in route:
                    openssh.forget(stop.name)
                return self._own().dial(host, route)
            refusal.message, refusal.hint = f"{refusal.message}; {error.message}", error.hint or refusal.hint
            refusal.waits_for_person = error.waits_for_person
            raise refusal from error
        return shell

    def forget(self, host: str) -> None:
        """Try a login there again that was refused."""
        self._openssh.forget(host)

    def _own(self) -> Dialer:
        from trainmon.transport.ssh.client import Dialer

        with self._lock:
            if self._dialer is None:
                self._dialer = Dialer(
                    self._loop,
                    ask=self._ask,
                    at_once=self._connect.at_once,
                    timeout=self._connect.timeout,
                    config_file=self._ssh_config,
                )
            return self._dialer

    def close(self) -> None:
        if self._dialer is not None:
            self._dialer.close()


class ClusterConnections:
    """The connections of one cluster, over SSH and by steps of jobs. `client_of`, `part_of` and `on_start` as in
    JobSteps; `part_of` also gets the name of the cluster."""

    def __init__(
        self,
        cluster: ClusterSettings,
        loop: EventLoop,
        ask: AskUser | None,
        ssh_config: Path | None,
        *,
        client_of: Callable[[], Client],
        part_of: Callable[[str, str], JobPart | None],
        on_start: Callable[[int], None] = lambda job: None,
    ) -> None:
        self._cluster, self._loop = cluster, loop
        self.ssh = Connections(loop, cluster.connect, ask, ssh_config)
        self._steps = JobSteps(loop, client_of, partial(part_of, cluster.name), on_start)
        self._refused: dict[str, tuple[JobPart, str]] = {}
        """The nodes that have refused SSH, each with our job there and the reason. In the next job, SSH is tried
        again."""

    def needs_step(self, host: str, *, is_node: bool) -> bool:
        """Whether a host is reached by a step only."""
        return self._cluster.connect.by == "srun" and self.may_use_step(host, is_node=is_node)

    def dialler(self, host: str, *, is_node: bool) -> Callable[[], Shell]:
        """How a host is dialled. It may raise HostUnreachable."""
        if is_local(self._cluster, host):
            return partial(LocalShell, self._loop, host=host)
        if not self.may_use_step(host, is_node=is_node):
            return partial(self.ssh.dial, host)
        return partial(self._steps.shell if self._cluster.connect.by == "srun" else self._dial_either, host)

    def may_use_step(self, host: str, *, is_node: bool) -> bool:
        """Whether a host may be reached by a step: it is a node, and not the login host."""
        is_far = host != self._cluster.login and not is_local(self._cluster, host)
        return self._cluster.connect.by in ("srun", "auto") and is_node and is_far

    def _dial_either(self, host: str) -> Shell:
        """Over SSH, or by a step if the node refuses SSH and a job of ours runs there."""
        part = self._steps.part_of(host)
        before, why = self._refused.get(host, (None, ""))
        if part is None or before != part:
            try:
                return self.ssh.dial(host)
            except HostKeyRefused:
                raise  # another machine may answer in its place: that must be seen
            except HostUnreachable as error:
                part = part or self._steps.part_of(host)  # the queue may have been polled meanwhile
                if part is None:
                    raise
                why = error.message
                self._refused[host] = part, why
        return self._steps.shell(host, why)

    def has_refused(self, host: str) -> None:
        """A login there has ended before a command ran, such as by a ForceCommand or a shell `nologin`."""
        part = self._steps.part_of(host)
        if part is not None:
            self._refused[host] = part, "a login there ends before a command runs"

    def close(self) -> None:
        """Close them; waits a moment for the end of the steps."""
        self._steps.close()
        self.ssh.close()


def is_local(cluster: ClusterSettings, host: str) -> bool:
    """Whether a host of a cluster is this machine, which needs no connection."""
    return cluster.login is None and host == local_hostname() and host not in (cluster.nodes or ())


def local_hostname() -> str:
    return socket.gethostname().partition(".")[0] or "localhost"
