"""The logins that only `ssh` can do: with a ticket of a real KDC, and with a key on a token, which is of software.
`tests/run --all` installs both."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.connections import Connections
from tests.lab.kerberos import Kdc
from tests.lab.sshd import Sshd, keygen, program
from tests.trainmon.cli.check.test_command import look, of
from trainmon.config import ClusterSettings, ConnectSettings, Settings
from trainmon.lib import HostKeyRefused, LoginNeeded, LoginRefused
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import AskUser
from trainmon.transport.ssh.client import SshShell
from trainmon.transport.ssh.openssh import OpensshShell

pytestmark = pytest.mark.slow

ADDRESS = "127.0.10.1"
"""Of the node n0."""


def connections(loop: EventLoop, config: Path, by: str = "ssh", ask: AskUser | None = None) -> Connections:
    return Connections(loop, ConnectSettings(by=by, timeout=60.0), ask, config)  # type: ignore[arg-type]


# ---- Kerberos --------------------------------------------------------------------------------------------------------


class Realm:
    """A KDC, and an sshd that accepts its tickets and passwords, and no keys."""

    def __init__(self, kdc: Kdc, sshd: Sshd) -> None:
        self.kdc, self.sshd = kdc, sshd

    def config(self, extra: str = "") -> Path:
        more = "Host *\n  GSSAPIAuthentication yes\n  GSSAPIDelegateCredentials yes\n"
        return self.sshd.ssh_config(1, extra=f"{extra}\n{more}")


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    folder = tmp_path_factory.mktemp("k")
    options = {"PubkeyAuthentication": "no", "PasswordAuthentication": "yes", "GSSAPIAuthentication": "yes"}
    options["GSSAPIStrictAcceptorCheck"] = "no"  # the name of this machine has no key
    with Kdc.start(folder / "kdc", ADDRESS) as kdc, pytest.MonkeyPatch.context() as patch:
        for name, value in kdc.environ.items():
            patch.setenv(name, value)
        with Sshd.start(folder / "sshd", **options) as sshd:
            yield Realm(kdc, sshd)


def test_kerberos_logs_in_where_our_client_cannot(realm: Realm, loop: EventLoop) -> None:
    dialler = connections(loop, realm.config())
    sentence = r"nobody can be asked; it accepts Kerberos \(gssapi\) \(get a Kerberos ticket: kinit\)$"
    for _ in range(2):
        with pytest.raises(LoginNeeded, match=sentence) as needed:
            dialler.dial("n0")
        assert needed.value.waits_for_person
    assert realm.sshd.log.read_text().count("Connection from ") == 1
    realm.kdc.log_in()
    shell = dialler.dial("n0")
    assert isinstance(shell, OpensshShell)
    assert shell.run(["sh", "-c", "echo $KRB5CCNAME; klist -s; exit $?"], timeout=60) == (1, b"\n", b""), (
        "not delegated"
    )
    shell.close()
    realm.kdc.log_out()
    with pytest.raises(LoginNeeded):
        dialler.dial("n0")
    with pytest.raises(LoginRefused, match=r"n0 refuses the login by ssh: .*Permission denied \(.*gssapi-with-mic"):
        connections(loop, realm.config(), "openssh").dial("n0").run(["true"], timeout=60)


def test_a_person_whom_the_host_asks_nothing_gets_a_ticket_and_the_host_is_logged_in_to(
    realm: Realm, loop: EventLoop
) -> None:
    only = "Host *\n  PreferredAuthentications gssapi-with-mic,publickey\n"
    dialler = connections(loop, realm.config(only), ask=lambda *_: None)
    for _ in range(2):
        with pytest.raises(LoginRefused, match=r"refuses the login of .* \(get a Kerberos ticket: kinit\)$") as refused:
            dialler.dial("n0")
        assert refused.value.waits_for_person
    realm.kdc.log_in()
    assert isinstance(dialler.dial("n0"), OpensshShell)
    realm.kdc.log_out()


def test_nobody_is_asked_for_a_password_while_there_is_a_ticket(realm: Realm, loop: EventLoop) -> None:
    asked: list[str] = []

    def ask(host: str, title: str, *_: object) -> None:
        asked.append(title)

    realm.kdc.log_in()
    assert isinstance(connections(loop, realm.config(), ask=ask).dial("n0"), OpensshShell)
    assert asked == []
    (realm.kdc.folder / "keytab").rename(realm.kdc.folder / "away")  # sshd refuses the ticket
    with pytest.raises(LoginNeeded):
        connections(loop, realm.config(f"Host *\n  ControlPath {realm.sshd.directory}/%n\n"), ask=ask).dial("n0")
    assert asked == ["Password"]
    (realm.kdc.folder / "away").rename(realm.kdc.folder / "keytab")
    realm.kdc.log_out()


def test_an_unknown_host_gets_no_ticket(realm: Realm, loop: EventLoop, tmp_path: Path) -> None:
    realm.kdc.log_in()
    config = realm.config(f"Host *\n  UserKnownHostsFile {tmp_path}/none\n")
    for by in ("ssh", "openssh"):
        with pytest.raises(HostKeyRefused):
            connections(loop, config, by).dial("n0").run(["true"], timeout=60)
    realm.kdc.log_out()


def test_check_proposes_a_ticket_and_reads_the_node_with_one(realm: Realm) -> None:
    settings = Settings(clusters=(ClusterSettings(name="lab", nodes=("n0",)),))
    (rows,) = look(settings, realm.config())
    assert ("a Kerberos ticket may log in", "kinit") in [(row.text, row.fix) for row in rows]
    realm.kdc.log_in()
    (rows,) = look(settings, realm.config())
    assert of(rows)[:5] == [("ok", "name"), ("ok", "connection"), ("ok", "host key"), ("ok", "login"), ("ok", "probe")]
    assert rows[3].text == "by the ssh command, without a prompt"
    realm.kdc.log_out()


# ---- PKCS#11 ---------------------------------------------------------------------------------------------------------

LIBRARY = Path("/usr/lib/softhsm/libsofthsm2.so")
PIN = "246813"


class Token:
    """A token of SoftHSM with one key, and an sshd that accepts it. `asked` exists if `ssh` has opened a window."""

    def __init__(self, folder: Path, sshd: Sshd) -> None:
        self.folder, self.sshd = folder, sshd
        self.asked = folder / "asked"
        self.config = sshd.ssh_config(1, extra=f"Host *\n  PKCS11Provider {LIBRARY}\n  ControlPath {folder}/%n\n")
        self.config.write_text(self.config.read_text().replace(f"  IdentityFile {sshd.key}\n", ""))
        self.typed = folder / "typed"
        self.typed.write_text(f"#!/bin/sh\necho {PIN}\n")
        self.typed.chmod(0o755)

    def typing(self) -> dict[str, str]:
        """The environment of a person who types the PIN."""
        return os.environ | {"SSH_ASKPASS": str(self.typed), "SSH_ASKPASS_REQUIRE": "force", "DISPLAY": ":0"}


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Token]:
    if shutil.which("softhsm2-util") is None:
        raise RuntimeError("softhsm2-util is missing; install it: apt-get install -y softhsm2")
    folder = tmp_path_factory.mktemp("p")
    (folder / "tokens").mkdir()
    (folder / "conf").write_text(f"directories.tokendir = {folder}/tokens\n")
    window = folder / "window"
    window.write_text(f"#!/bin/sh\ntouch {folder}/asked\n")
    window.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch, Sshd.start(folder / "sshd") as sshd:
        patch.setenv("SOFTHSM2_CONF", str(folder / "conf"))
        patch.setenv("SSH_ASKPASS", str(window))
        patch.setenv("SSH_ASKPASS_REQUIRE", "force")
        patch.setenv("DISPLAY", ":0")
        key = folder / "key"
        make = [program("ssh-keygen"), "-q", "-t", "rsa", "-m", "PKCS8", "-N", "", "-f", str(key)]
        own = ["--token", "t", "--label", "k", "--id", "01", "--pin", PIN]
        for command in (
            make,
            ["softhsm2-util", "--init-token", "--free", "--label", "t", "--pin", PIN, "--so-pin", PIN],
            ["softhsm2-util", "--import", str(key), *own],
        ):
            subprocess.run(command, check=True, capture_output=True)
        sshd.authorized.write_text(sshd.public(key) + "\n")
        key.unlink()
        yield Token(folder, sshd)


@contextlib.contextmanager
def master(token: Token) -> Iterator[None]:
    """A master connection, for which the PIN was typed."""
    ssh = [program("ssh"), "-F", str(token.config)]
    subprocess.run([*ssh, "-fNM", "n0"], env=token.typing(), check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run([*ssh, "-O", "exit", "n0"], check=True, capture_output=True)


def test_a_token_whose_pin_was_typed_for_a_master_connection_logs_in(token: Token, loop: EventLoop) -> None:
    for by in ("ssh", "openssh"):
        with pytest.raises(LoginRefused) as refused:
            connections(loop, token.config, by).dial("n0").run(["true"], timeout=60)
        assert refused.value.waits_for_person == (by == "openssh")
        assert (f" (open a master connection: ssh -M -F {token.config} n0" in str(refused.value)) == (by == "openssh")
        with master(token):
            shell = connections(loop, token.config, by).dial("n0")
            assert isinstance(shell, OpensshShell)
            assert shell.run(["echo", "here"], timeout=60).stdout == b"here\n"
            shell.close()
    assert not token.asked.exists()


def test_a_token_in_an_agent_logs_in_by_both_clients(token: Token, loop: EventLoop, tmp_path: Path) -> None:
    agent = subprocess.Popen([program("ssh-agent"), "-D", "-P", "*", "-a", f"{tmp_path}/agent"], stdout=subprocess.PIPE)
    assert agent.stdout is not None
    agent.stdout.readline()
    environ = token.typing() | {"SSH_AUTH_SOCK": f"{tmp_path}/agent"}
    try:
        subprocess.run([program("ssh-add"), "-s", str(LIBRARY)], env=environ, check=True, capture_output=True)
        config = tmp_path / "config"
        config.write_text(f"Host *\n  IdentityAgent {tmp_path}/agent\n{token.config.read_text()}")
        for by, kind in (("ssh", SshShell), ("openssh", OpensshShell)):
            dialler = connections(loop, config, by)
            shell = dialler.dial("n0")
            assert isinstance(shell, kind)
            assert shell.run(["echo", "here"], timeout=60).stdout == b"here\n"
            dialler.close()
    finally:
        agent.terminate()
        agent.communicate()
    assert not token.asked.exists()


def test_check_says_what_a_token_needs(token: Token) -> None:
    (rows,) = look(Settings(clusters=(ClusterSettings(name="lab", nodes=("n0",)),)), token.config)
    text, fix = f"only the ssh command uses the keys of {LIBRARY}", "if it asks for a PIN, open a master connection"
    assert next(row for row in rows if row.text == text).fix == f'set connect.by = "openssh"; {fix}'


def test_a_locked_key_opens_no_window(token: Token, loop: EventLoop, tmp_path: Path) -> None:
    locked = keygen(tmp_path / "locked", passphrase="secret")
    config = tmp_path / "config"
    token.sshd.authorized.write_text(f"{token.sshd.authorized.read_text()}{token.sshd.public(locked)}\n")
    extra = f"Host *\n  IdentityFile {locked}\n  PKCS11Provider none\n  ControlPath none\n"
    config.write_text(extra + token.config.read_text())
    with pytest.raises(LoginRefused, match="n0 refuses the login by ssh"):
        connections(loop, config, "openssh").dial("n0").run(["true"], timeout=60)
    assert not token.asked.exists()
