"""An in-process SSH server (paramiko's) for logins that a real sshd needs PAM and accounts for: 2FA and passwords."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import paramiko
from paramiko.common import AUTH_FAILED, AUTH_PARTIALLY_SUCCESSFUL, AUTH_SUCCESSFUL, OPEN_SUCCEEDED
from paramiko.server import InteractiveQuery


@dataclass
class Script:
    """How a login goes: each step is a method; the rounds of keyboard-interactive are (title, prompts, answers)."""

    steps: tuple[str, ...]
    password: str = ""
    rounds: tuple[tuple[str, tuple[tuple[str, bool], ...], tuple[str, ...]], ...] = ()
    key: paramiko.PKey | None = None
    attempts: list[str] = field(default_factory=list)
    """What was tried, in order."""
    runs: bool = False
    """Whether commands are really run, or only told back."""


class _Server(paramiko.ServerInterface):
    def __init__(self, script: Script) -> None:
        self._script = script
        self._step = 0
        self._round = 0

    def get_allowed_auths(self, username: str) -> str:
        return self._script.steps[min(self._step, len(self._script.steps) - 1)]

    def _result(self, right: bool) -> int:
        if not right:
            return AUTH_FAILED
        self._step += 1
        return AUTH_SUCCESSFUL if self._step == len(self._script.steps) else AUTH_PARTIALLY_SUCCESSFUL

    def check_auth_none(self, username: str) -> int:
        return AUTH_FAILED

    def check_auth_password(self, username: str, password: str) -> int:
        self._script.attempts.append("password")
        return self._result("password" in self.get_allowed_auths(username) and password == self._script.password)

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self._script.attempts.append("publickey")
        return self._result("publickey" in self.get_allowed_auths(username) and key == self._script.key)

    def check_auth_interactive(self, username: str, submethods: str) -> int | InteractiveQuery:
        self._script.attempts.append("keyboard-interactive")
        if "keyboard-interactive" not in self.get_allowed_auths(username):
            return AUTH_FAILED
        return self._query()

    def check_auth_interactive_response(self, responses: list[str]) -> int | InteractiveQuery:
        right = tuple(responses) == self._script.rounds[self._round][2]
        self._round += 1
        if right and self._round < len(self._script.rounds):
            return self._query()
        return self._result(right)

    def _query(self) -> InteractiveQuery:
        title, prompts, _ = self._script.rounds[self._round]
        return InteractiveQuery(title, "say it", *prompts)

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        answer = run_command if self._script.runs else self._answer
        threading.Thread(target=answer, args=(channel, command), daemon=True).start()
        return True

    @staticmethod
    def _answer(channel: paramiko.Channel, command: bytes) -> None:
        with contextlib.suppress(OSError, EOFError):
            channel.sendall(b"ran " + command)
            channel.send_exit_status(0)
            channel.close()


def run_command(channel: paramiko.Channel, command: bytes) -> None:
    """Run it here, in a shell, as sshd would."""
    with subprocess.Popen(
        ["sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        threading.Thread(target=_feed, args=(channel, process.stdin), daemon=True).start()
        with contextlib.suppress(OSError, EOFError):
            while data := process.stdout.read(65_536):
                channel.sendall(data)
            channel.send_exit_status(process.wait(10))
            channel.close()


def _feed(channel: paramiko.Channel, stdin: IO[bytes]) -> None:
    with contextlib.suppress(OSError, EOFError), stdin:
        while data := channel.recv(65_536):
            stdin.write(data)


class ParamikoServer:
    """Listens on loopback; every connection follows the script from its start."""

    def __init__(self, host_key: Path, script: Script) -> None:
        self._key = paramiko.Ed25519Key.from_private_key_file(str(host_key))
        self._script = script
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._transports: list[paramiko.Transport] = []
        self.port: int = self._socket.getsockname()[1]

    @classmethod
    @contextlib.contextmanager
    def start(cls, host_key: Path, script: Script) -> Iterator[ParamikoServer]:
        server = cls(host_key, script)
        thread = threading.Thread(target=server._accept, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server._socket.shutdown(socket.SHUT_RDWR)
            server._socket.close()
            thread.join(5.0)
            server.drop_all()

    def drop_all(self) -> None:
        """Every connection breaks; new ones are taken."""
        for transport in self._transports:
            transport.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connected, _ = self._socket.accept()
                transport = paramiko.Transport(connected)
                transport.add_server_key(self._key)
                self._transports.append(transport)
                with contextlib.suppress(paramiko.SSHException, EOFError):
                    transport.start_server(event=threading.Event(), server=_Server(self._script))
