"""Real sshd, real `ssh` and real master connections: the second way to a host that our client cannot log in to."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from collectors.connections import Connections
from tests.lab.sshd import Sshd, keygen, program, until
from tests.trainmon.transport.ssh.test_client import NASTY, Received
from trainmon.actions.execution.operations import NOT_STARTED
from trainmon.config import ConnectSettings
from trainmon.lib import CommandFailed, HostKeyRefused, HostUnreachable, LoginNeeded, LoginRefused
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.files import read_range
from trainmon.transport.shell import AskUser
from trainmon.transport.ssh.client import SshShell
from trainmon.transport.ssh.openssh import OpensshShell, open_master, route_to

BANNER = "\x1b[31mAuthorized\x1b[0m use only\n"


class Site:
    """An sshd that refuses the key of the ssh config. Only its master connections have the right one."""

    def __init__(self, folder: Path, sshd: Sshd) -> None:
        self.folder, self.sshd = folder, sshd
        self.sockets = folder / "a %b"
        self.sockets.mkdir()
        self.opened: set[str] = set()
        self.config = self.write()

    def write(self, extra: str = "") -> Path:
        """An ssh config. With it, `ssh` opens a master connection by itself."""
        key = f"Host *\n  IdentityFile {self.folder}/stranger\n  IdentitiesOnly yes\n  ControlPersist 10m\n"
        master = f'  ControlMaster auto\n  ControlPath "{self.folder}/a %%b/%n"\n'
        config = self.sshd.ssh_config(6, extra=f"{extra}\n{key}{master}", path=self.folder / "config")
        config.write_text(config.read_text().replace(f"  IdentityFile {self.sshd.key}\n", ""))
        return config

    def open(self, host: str) -> None:
        """A person opens a master connection."""
        options = ["-o", "PermitLocalCommand=no", "-o", "RemoteCommand=none", "-o", "ClearAllForwardings=yes"]
        command = [program("ssh"), "-F", str(self.config), "-i", str(self.sshd.key), *options, "-fNM", host]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        self.opened.add(host)

    def shut(self, host: str) -> None:
        """The master connection ends."""
        subprocess.run([program("ssh"), "-F", str(self.config), "-O", "exit", host], check=False, capture_output=True)
        until(lambda: not (self.sockets / host).exists(), "its socket is gone")

    def master(self, host: str) -> int:
        """The process of a master connection."""
        check = [program("ssh"), "-F", str(self.config), "-O", "check", host]
        said = subprocess.run(check, check=True, capture_output=True, text=True).stderr
        return int(re.findall(r"pid=(\d+)", said)[0])

    def logins(self) -> int:
        """How many connections sshd has accepted so far."""
        return self.sshd.log.read_text().count("Connection from ")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("m")
    keygen(folder / "stranger")
    (folder / "banner").write_text(BANNER)
    (folder / "few").write_text(f"Match LocalAddress 127.0.10.6\n  MaxSessions 1\n  Banner {folder}/banner\n")
    with Sshd.start(folder / "sshd", Include=str(folder / "few")) as sshd:
        made = Site(folder, sshd)
        made.open("n0")
        yield made
        for host in made.opened:
            made.shut(host)


def connections(
    site: Site, loop: EventLoop, by: str = "ssh", *, config: Path | None = None, ask: AskUser | None = None
) -> Connections:
    return Connections(loop, ConnectSettings(by=by, timeout=60.0), ask, config or site.config)  # type: ignore[arg-type]


@pytest.fixture
def shell(site: Site, loop: EventLoop) -> Iterator[OpensshShell]:
    dialled = connections(site, loop).dial("n0")
    assert isinstance(dialled, OpensshShell)
    yield dialled
    dialled.close()


# ---- commands --------------------------------------------------------------------------------------------------------


def test_where_our_client_is_refused_an_open_master_connection_is_used(shell: OpensshShell) -> None:
    assert shell.way == "by the ssh command, over the open master connection"
    assert shell.run(["sh", "-c", "echo out; echo err >&2; exit 3"], timeout=60) == (3, b"out\n", b"err\n")
    done = shell.run(["printf", "[%s]", *NASTY, "%h"], timeout=60)
    assert done.stdout.decode() == "".join(f"[{argument}]" for argument in (*NASTY, "%h"))
    sent = os.urandom(1_000_000)
    assert shell.run(["cat"], stdin=sent, timeout=60).stdout == sent
    with pytest.raises(CommandFailed, match=r"n0: sleep did not end in 0\.2s"):
        shell.run(["sleep", "30"], timeout=0.2)


def test_status_255_of_a_command_is_no_lost_connection(shell: OpensshShell) -> None:
    said = "root@n9: Permission denied (publickey)."
    done = shell.run(["sh", "-c", 'echo "$1" >&2; exit 255', "sh", said], timeout=60)
    assert done == (255, b"", f"{said}\n".encode())


def test_a_log_is_read_and_searched(shell: OpensshShell, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("step 1\nstep 2\nerror\n")
    assert read_range(shell, str(tmp_path / "log"), -6).data == b"error\n"
    assert read_range(shell, str(tmp_path / "log"), 0, 20, pattern="step", most=5).data == b"0\n7"


def test_a_remote_command_ends_with_its_connection(shell: OpensshShell, tmp_path: Path) -> None:
    pid, received = tmp_path / "pid", Received()
    stream = shell.stream(["sh", "-c", 'echo $$ > "$1"; cat; rm "$1"', "sh", str(pid)], received)
    until(lambda: pid.exists() and pid.read_text(), "it runs")
    os.kill(stream._process.pid, signal.SIGKILL)  # as when this program is killed
    until(lambda: not pid.exists(), "its standard input has ended")
    assert received.done.wait(60)
    assert [(status, str(error)) for status, error in received.ends] == [(None, "n0: ssh was ended by signal 9")]


# ---- when a master connection is used --------------------------------------------------------------------------------


def test_nobody_is_asked_while_a_master_connection_is_open(site: Site, loop: EventLoop, tmp_path: Path) -> None:
    locked = keygen(tmp_path / "locked", passphrase="secret")
    site.sshd.authorized.write_text(site.sshd.authorized.read_text() + site.sshd.public(locked) + "\n")
    config = tmp_path / "config"
    config.write_text(f"Host *\n  IdentityFile {locked}\n{site.config.read_text()}")
    asked: list[str] = []

    def ask(host: str, *_: object) -> tuple[str, ...]:
        asked.append(host)
        return ("secret",)

    dialler = connections(site, loop, config=config, ask=ask)
    assert isinstance(dialler.dial("n0"), OpensshShell)
    assert asked == []
    assert isinstance(dialler.dial("n1"), SshShell)
    assert asked == ["n1"]
    dialler.close()


def test_our_client_is_used_where_it_can_log_in(site: Site, loop: EventLoop, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(f"Host *\n  IdentityFile {site.sshd.key}\n{site.config.read_text()}")
    dialler = connections(site, loop, config=config)
    assert isinstance(dialler.dial("n0"), SshShell)
    dialler.close()
    only = Connections(loop, ConnectSettings(openssh=("n0",)), None, config)
    assert isinstance(only.dial("n0"), OpensshShell)
    with pytest.raises(LoginRefused, match="n0 refuses the login"):
        connections(site, loop, "paramiko").dial("n0")


def test_a_lost_master_connection_is_used_again_when_it_is_back_and_no_login_is_tried_before(
    site: Site, loop: EventLoop
) -> None:
    site.open("n1")
    dialler, received = connections(site, loop), Received()
    dialler.dial("n1").stream(["cat"], received)
    site.shut("n1")
    assert received.done.wait(60)
    ((status, error),) = received.ends
    again = f"log in again with ssh -F {site.config} n1"
    assert status is None
    assert isinstance(error, LoginNeeded)
    assert (error.message, error.hint) == ("n1: the master connection is closed", again)
    assert error.waits_for_person
    with pytest.raises(LoginNeeded, match=rf"n1: the master connection is closed \({again}\)$"):
        dialler.dial("n1").run(["true"], timeout=60)  # the one login without it
    before = site.logins()
    with pytest.raises(LoginNeeded, match=rf"n1: the master connection is closed \({again}\)$") as refused:
        dialler.dial("n1")
    assert refused.value.waits_for_person
    assert site.logins() == before
    site.open("n1")
    assert dialler.dial("n1").run(["echo", "back"], timeout=60).stdout == b"back\n"


def test_a_host_that_needs_a_person_is_not_logged_in_to_before_a_master_connection_is_open(
    site: Site, loop: EventLoop, tmp_path: Path
) -> None:
    locked = keygen(tmp_path / "locked", passphrase="secret")
    site.sshd.authorized.write_text(site.sshd.authorized.read_text() + site.sshd.public(locked) + "\n")
    config = tmp_path / "config"
    config.write_text(f"Host *\n  IdentityFile {locked}\n{site.config.read_text()}")
    dialler, before = connections(site, loop, config=config), site.logins()
    sentence = (
        rf"n2 needs a passphrase for .*, and nobody can be asked \(open a master connection: ssh -F {config} n2\)"
    )
    for _ in range(2):
        with pytest.raises(LoginNeeded, match=sentence) as refused:
            dialler.dial("n2")
        assert refused.value.waits_for_person
    assert site.logins() == before + 1
    site.open("n2")
    assert isinstance(dialler.dial("n2"), OpensshShell)
    site.shut("n2")


def test_a_command_whose_master_connection_was_opened_again_has_no_status(site: Site, loop: EventLoop) -> None:
    site.open("n1")
    received, old = Received(), site.master("n1")
    connections(site, loop).dial("n1").stream(["cat"], received)
    (site.sockets / "n1").unlink()
    site.open("n1")
    os.kill(old, signal.SIGKILL)
    assert received.done.wait(60)
    sentence = "n1: the master connection of n1 was opened again"
    assert [(status, str(error)) for status, error in received.ends] == [(None, sentence)]
    site.shut("n1")


def test_a_refusal_is_tried_again_for_a_new_reason(site: Site, loop: EventLoop) -> None:
    dialler, before = connections(site, loop, "openssh"), site.logins()

    def is_refused() -> None:
        with pytest.raises(LoginRefused, match=r"Permission denied \(publickey\)\. \(open a master conn") as refused:
            dialler.dial("n2").run(["true"], timeout=60)
        assert refused.value.waits_for_person

    is_refused()
    is_refused()
    assert site.logins() == before + 1
    dialler.forget("n2")  # our job runs there now
    is_refused()
    assert site.logins() == before + 2


def test_no_person_can_help_with_a_key_that_our_client_has_and_the_host_refuses(site: Site, loop: EventLoop) -> None:
    with pytest.raises(LoginRefused, match="n2 refuses the login") as refused:
        connections(site, loop).dial("n2")
    assert not refused.value.waits_for_person


def test_our_client_is_refused_only_once_for_each_master_connection(site: Site, loop: EventLoop) -> None:
    site.open("n1")
    dialler, before = connections(site, loop), site.logins()
    dialler.dial("n1")
    dialler.dial("n1")
    assert site.logins() == before + 1
    site.shut("n1")
    site.open("n1")
    dialler.dial("n1")
    assert site.logins() == before + 3  # that of the new master connection, too
    site.shut("n1")


def test_a_proxy_command_that_needs_a_person_is_not_needed_over_a_master_connection(
    site: Site, loop: EventLoop, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    config.write_text(f"Host *\n  ProxyCommand echo a code is needed >&2; false\n{site.config.read_text()}")
    assert isinstance(connections(site, loop, config=config).dial("n0"), OpensshShell)
    with pytest.raises(HostUnreachable, match="n2: its ProxyCommand ended: a code is needed"):
        connections(site, loop, config=config).dial("n2")


def test_a_jump_host_is_reached_over_its_master_connection(site: Site, loop: EventLoop, tmp_path: Path) -> None:
    config = tmp_path / "config"
    target = f"Host n3\n  ProxyJump n0\n  IdentityFile {site.sshd.key}\n"
    config.write_text(target + site.config.read_text())
    shell = connections(site, loop, "openssh", config=config).dial("n3")
    assert isinstance(shell, OpensshShell)
    assert shell.way == "by the ssh command, over the open master connection of n0"
    assert b"127.0.10.4" in shell.run(["sh", "-c", "echo $SSH_CONNECTION"], timeout=60).stdout
    assert not (site.sockets / "n3").exists()


def test_a_full_master_connection_is_an_error_in_words(site: Site, loop: EventLoop) -> None:
    site.open("n5")
    shell = connections(site, loop, "openssh").dial("n5")
    first = Received()
    stream = shell.stream(["cat"], first)
    before = site.logins()
    with pytest.raises(CommandFailed, match=r"n5: its master connection opens no session: .*refused by peer") as failed:
        shell.run(["true"], timeout=60)
    assert failed.value.hint == "its sshd limits the sessions of one connection (MaxSessions)"
    assert site.logins() == before
    stream.close()
    assert first.done.wait(60)
    assert first.ends == [(None, None)]


# ---- one machine for each socket, and few refusals -------------------------------------------------------------------


@pytest.mark.parametrize("by", ["ssh", "openssh"])
@pytest.mark.parametrize(("hosts", "other"), [("n?", r"Host n\? n2"), ("n0", "n0")])
def test_a_master_connection_is_not_used_for_another_host_with_its_path(
    hosts: str, other: str, by: str, site: Site, loop: EventLoop, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    config.write_text(f'Host {hosts} n2\n  ControlPath "{site.folder}/a %%b/n0"\n{site.config.read_text()}')
    dialler = connections(site, loop, by, config=config)
    if other == "n0":
        assert dialler.dial("n0").run(["echo", "here"], timeout=60).stdout == b"here\n"
    with pytest.raises(LoginRefused, match=rf"its ControlPath is that of {other}, too: set ControlPath ~/\.ssh/%n"):
        dialler.dial("n2").run(["true"], timeout=60)
    config.write_text(config.read_text().replace(" n2", "", 1))
    if other == "n0":
        assert dialler.dial("n0").run(["echo", "here"], timeout=60).stdout == b"here\n"


def test_what_runs_over_a_master_connection_ends_when_another_host_has_its_path(
    site: Site, loop: EventLoop, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    config.write_text(f'Host n0 n2\n  ControlPath "{site.folder}/a %%b/n0"\n{site.config.read_text()}')
    shell, received = connections(site, loop, "openssh", config=config).dial("n0"), Received()
    shell.stream(["cat"], received)
    with pytest.raises(LoginRefused):
        connections(site, loop, "openssh", config=config).dial("n2").run(["true"], timeout=60)  # of another cluster
    assert received.done.wait(60)
    sentence = "n0: its ControlPath is that of n2, too"
    assert [str(error) for _, error in received.ends] == [f"{sentence} (set ControlPath ~/.ssh/%n-%C)"]
    with pytest.raises(HostUnreachable, match=sentence):
        shell.run(["true"], timeout=60)


def behind(jump: str, site: Site, folder: Path, extra: str = "") -> Path:
    """An ssh config in which all other hosts are behind a jump host, and accept the key."""
    config = folder / "config"
    keys = f"  ProxyJump {jump}\n  IdentityFile {site.sshd.key}\n  ControlPath none\n"
    config.write_text(f"{extra}\nHost n? !{jump}\n{keys}{site.config.read_text()}")
    return config


def dial_all(dialler: Connections) -> list[str]:
    """Run a command on the hosts behind n1, at the same time. Returns the errors."""

    def dial(host: str) -> str:
        try:
            dialler.dial(host).run(["true"], timeout=60)
        except HostUnreachable as error:
            return error.message
        return ""

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(dial, ("n0", "n2", "n3", "n4")))


def test_a_jump_host_refuses_one_login_for_all_hosts_behind_it(
    site: Site, loop: EventLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = behind("n1", site, tmp_path, "Host n1\n  ControlPath none\n")
    dialler, before = connections(site, loop, "openssh", config=config), site.logins()
    for _ in range(2):
        errors = dial_all(dialler)
        assert all(error.startswith("n1 refuses the login by ssh: ") for error in errors)
        assert site.logins() == before + 1
        dialler.forget("n0")  # too soon for the jump host, which others may want, too
    monkeypatch.setattr("trainmon.transport.ssh.openssh.FORGET_AFTER", 0.0)
    dialler.forget("n0")
    dial_all(dialler)
    assert site.logins() == before + 2


@pytest.mark.parametrize("by", ["ssh", "openssh"])
def test_when_the_master_connection_of_a_jump_host_ends_one_login_without_it_is_tried(
    by: str, site: Site, loop: EventLoop, tmp_path: Path
) -> None:
    site.open("n1")
    dialler = connections(site, loop, by, config=behind("n1", site, tmp_path))
    assert dial_all(dialler) == [""] * 4
    received = [Received() for _ in range(4)]
    for host, sink in zip(("n0", "n2", "n3", "n4"), received, strict=True):
        dialler.dial(host).stream(["cat"], sink)
    before = site.logins()
    site.shut("n1")
    assert all(sink.done.wait(60) for sink in received)
    for _ in range(2):
        assert all("n1: the master connection is closed" in error for error in dial_all(dialler))
    assert site.logins() == before + 1
    site.open("n1")
    assert dial_all(dialler) == [""] * 4
    site.shut("n1")


def test_a_host_that_refuses_is_not_tried_again_since_its_jump_host_has_a_master_connection(
    site: Site, loop: EventLoop, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    config.write_text(f"Host n3\n  ProxyJump n0\n{site.config.read_text()}")
    dialler, before = connections(site, loop, "openssh", config=config), site.logins()
    for _ in range(3):
        with pytest.raises(LoginRefused, match=r"n3 refuses .*open a master connection: ssh -F"):
            dialler.dial("n3").run(["true"], timeout=60)
    assert site.logins() == before + 1


# ---- what is refused -------------------------------------------------------------------------------------------------

OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGZha2VmYWtlZmFrZWZha2VmYWtlZmFrZWZha2VmYWtl"


@pytest.mark.parametrize(
    ("known", "sentence"),
    [
        ("", "n0: its ED25519 host key is not known"),
        (f"* {OTHER}", "n0: its ED25519 host key HAS CHANGED"),
        ("* {key}\n@revoked * {key}", "n0: its ED25519 host key is REVOKED"),
    ],
)
def test_a_host_key_that_is_refused_is_never_tried_in_another_way(
    known: str, sentence: str, site: Site, loop: EventLoop, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    (tmp_path / "known").write_text(known.replace("{key}", site.sshd.public(site.sshd.host_keys["ed25519"])) + "\n")
    config.write_text(f"Host *\n  UserKnownHostsFile {tmp_path}/known\n{site.config.read_text()}")
    with pytest.raises(HostKeyRefused, match=sentence):
        connections(site, loop, config=config).dial("n0")  # its master connection is open
    lax = "StrictHostKeyChecking no\n  NoHostAuthenticationForLocalhost yes\n  UpdateHostKeys yes\n"
    config.write_text(f"Host *\n  {lax}{config.read_text()}")
    with pytest.raises(HostKeyRefused, match=r"n4: its host key is refused by ssh: .*Host key verification failed"):
        connections(site, loop, "openssh", config=config).dial("n4").run(["true"], timeout=60)


def test_the_reason_of_a_refusal_has_no_escape_sequences(site: Site, loop: EventLoop, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(f"Host n5\n  ControlPath none\n  LogLevel QUIET\n{site.config.read_text()}")
    with pytest.raises(LoginRefused) as refused:
        connections(site, loop, "openssh", config=config).dial("n5").run(["true"], timeout=60)
    user = site.sshd.user
    assert refused.value.message == f"n5 refuses the login by ssh: {user}@127.0.10.6: Permission denied (publickey)."


@pytest.mark.parametrize("name", ["-oProxyCommand=id", "--", "a;id", "$(id)"])
def test_a_name_is_never_an_option(name: str, site: Site, loop: EventLoop) -> None:
    with pytest.raises(HostUnreachable, match="is not a host name"):
        connections(site, loop, "openssh").dial(name)


def test_the_ssh_config_does_nothing_but_connect(
    site: Site, loop: EventLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("DISPLAY", ":0")
    known = tmp_path / "known"
    key = site.sshd.public(site.sshd.host_keys["ed25519"])
    known.write_text("".join(f"[{site.sshd.address(number)}]:{site.sshd.port} {key}\n" for number in (0, 2, 3)))
    listed = known.read_text()
    more = (
        f"Host *\n  LocalForward 127.0.0.1:{port} 127.0.0.1:1\n  RemoteCommand echo no\n  RequestTTY force\n"
        f"  PermitLocalCommand yes\n  LocalCommand touch {tmp_path}/done\n  ForwardAgent yes\n  StdinNull yes\n"
        f"  SessionType none\n  ForkAfterAuthentication yes\n  LogLevel QUIET\n  BatchMode no\n  ForwardX11 yes\n"
        f"  StrictHostKeyChecking no\n  UpdateHostKeys yes\n  UserKnownHostsFile {known}\n  Tunnel yes\n"
        f"  ExitOnForwardFailure yes\n  AddKeysToAgent yes\n  IdentityAgent {tmp_path}/agent\n"
        f"Host n2\n  IdentityFile {site.sshd.key}\n  ProxyJump n3\nHost n3\n  IdentityFile {site.sshd.key}\n"
    )
    config = tmp_path / "config"
    config.write_text(more + site.config.read_text())
    with agent_at(tmp_path / "agent") as keys:
        for host in ("n0", "n2"):
            shell, received = connections(site, loop, "openssh", config=config).dial(host), Received()
            done = shell.stream(["sh", "-c", 'tty; echo "$SSH_AUTH_SOCK$DISPLAY"; cat; exit 3'], received)
            done.write(b"typed\n")
            until(lambda: b"typed" in received.out, "it answers")  # noqa: B023
            with socket.socket() as client:
                assert client.connect_ex(("127.0.0.1", port)) != 0
            done.finish()
            assert received.done.wait(60)
            assert received.out == b"not a tty\n\ntyped\n"
            assert received.ends == [(3, None)]
        assert keys() == []
    assert not (tmp_path / "done").exists()
    assert known.read_text() == listed
    assert not {"n2", "n3"} & {path.name for path in site.sockets.iterdir()}  # no master connection was opened


@contextlib.contextmanager
def agent_at(path: Path) -> Iterator[Callable[[], list[str]]]:
    """A running agent. Yields what lists its keys."""
    agent = subprocess.Popen([program("ssh-agent"), "-D", "-a", str(path)], stdout=subprocess.PIPE)
    assert agent.stdout is not None
    agent.stdout.readline()

    def keys() -> list[str]:
        environ = os.environ | {"SSH_AUTH_SOCK": str(path)}
        listed = subprocess.run([program("ssh-add"), "-L"], env=environ, capture_output=True, text=True, check=False)
        return [line for line in listed.stdout.splitlines() if line.startswith("ssh-")]

    try:
        yield keys
    finally:
        agent.terminate()
        agent.communicate()


@pytest.mark.slow
def test_a_connection_that_is_silent_is_lost_within_15_s(site: Site, loop: EventLoop, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(f"Host *\n  IdentityFile {site.sshd.key}\n  ControlPath none\n{site.config.read_text()}")
    before, received = set(site.sshd.sessions()), Received()
    connections(site, loop, "openssh", config=config).dial("n3").stream(["cat"], received)
    ours = set(site.sshd.sessions()) - before
    for pid in ours:
        os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    assert received.done.wait(60)
    assert time.monotonic() - began < 15.0
    ((_, error),) = received.ends
    assert str(error) == "n3: Timeout, server 127.0.10.4 not responding."
    for pid in ours:
        os.kill(pid, signal.SIGCONT)


def test_a_socket_that_nobody_listens_at_is_no_master_connection(site: Site) -> None:
    (stop,) = route_to("n4", site.config)
    assert open_master(stop) is None
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(site.sockets / "n4"))
        assert open_master(stop) is None
        left.listen(0)
        queued = [socket.socket(socket.AF_UNIX) for _ in range(3)]
        for client in queued:  # as when a master connection hangs
            client.setblocking(False)
            client.connect_ex(str(site.sockets / "n4"))
        began = time.monotonic()
        assert open_master(stop) is not None
        assert time.monotonic() - began < 0.5
        for client in queued:
            client.close()
    assert open_master(stop) is None
    (site.sockets / "n4").unlink()
    (stop,) = route_to("n0", site.config)
    assert open_master(stop)


def test_a_master_connection_that_does_not_answer_is_given_up(
    site: Site, shell: OpensshShell, loop: EventLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainmon.transport.ssh.openssh.START_TIMEOUT", 0.3)
    pid = site.master("n0")
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(CommandFailed, match=r"^n0: its shell has not started in 0\.3s$") as late:
            shell.run(["true"], timeout=60)
        assert not NOT_STARTED.search(late.value.message)  # it may start yet
        config = behind("n0", site, tmp_path, "Host n3\n  ConnectTimeout 1\n")
        monkeypatch.setattr("trainmon.transport.ssh.openssh.START_TIMEOUT", 60.0)
        with pytest.raises(HostUnreachable, match="n3: no answer over the master connection of n0") as lost:
            connections(site, loop, "openssh", config=config).dial("n3").run(["true"], timeout=60)
        assert lost.value.hint == f"if it hangs: ssh -O exit -F {config} n0"
    finally:
        os.kill(pid, signal.SIGCONT)
