"""Connections to the hosts of a cluster: one Dialer for all, and the name of this machine."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from trainmon.config import ClusterSettings, ConnectSettings
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import AskUser, Shell

if TYPE_CHECKING:
    from trainmon.transport.ssh.client import Dialer


class Connections:
    """One Dialer, created (and paramiko imported) when the first host is dialled."""

    def __init__(self, loop: EventLoop, connect: ConnectSettings, ask: AskUser | None, ssh_config: Path | None) -> None:
        self._loop = loop
        self._connect = connect
        self._ask = ask
        self._ssh_config = ssh_config
        self._lock = threading.Lock()
        self._dialer: Dialer | None = None

    def dial(self, host: str) -> Shell:
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
            dialer = self._dialer
        return dialer.dial(host)

    def close(self) -> None:
        if self._dialer is not None:
            self._dialer.close()


def is_local(cluster: ClusterSettings, host: str) -> bool:
    """Whether a host of a cluster is this machine, which needs no connection."""
    return cluster.login is None and host == local_hostname() and host not in (cluster.nodes or ())


def local_hostname() -> str:
    return socket.gethostname().partition(".")[0] or "localhost"
