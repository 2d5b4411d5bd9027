"""Real logins: keys, agents, certificates, passphrases, second factors, and what is said when nobody is asked."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from paramiko import Ed25519Key

from tests.lab.paramiko_server import ParamikoServer, Script
from tests.lab.sshd import Sshd, keygen, program, sign, until
from trainmon.lib import LoginNeeded, LoginRefused
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import AskUser
from trainmon.transport.ssh.client import Dialer, SshShell


class Person:
    """Answers by the words of the question, after some seconds, and remembers what was asked; None declines."""

    def __init__(self, answers: dict[str, str | None], *, takes: float = 0.0) -> None:
        self._answers = answers
        self._takes = takes
        self._at_once = threading.Lock()
        self.requests: list[tuple[str, str, str]] = []

    def __call__(
        self, host: str, title: str, instructions: str, fields: tuple[tuple[str, bool], ...], _: object
    ) -> tuple[str, ...] | None:
        assert self._at_once.acquire(blocking=False), "two questions at once"
        try:
            self.requests += [(host, title, text) for text, _ in fields]
            time.sleep(self._takes)
            answers = [self._answers[text] for text, _ in fields]
            return None if None in answers else tuple(answer for answer in answers if answer is not None)
        finally:
            self._at_once.release()


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with Sshd.start(tmp_path_factory.mktemp("sshd")) as running:
        yield running


@contextlib.contextmanager
def dialing(loop: EventLoop, config: Path, ask: AskUser | None = None) -> Iterator[Dialer]:
    dialer = Dialer(loop, ask=ask, config_file=config)
    try:
        yield dialer
    finally:
        dialer.close()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Path]:
    """A real ssh-agent; the path of its socket."""
    path = tmp_path / "agent"
    process = subprocess.Popen([program("ssh-agent"), "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    try:
        until(path.exists, "the agent listens")
        yield path
    finally:
        process.kill()
        process.wait(40)


def add_to(agent: Path, *keys: Path) -> None:
    environment = {**os.environ, "SSH_AUTH_SOCK": str(agent)}
    subprocess.run([program("ssh-add"), "-q", *map(str, keys)], env=environment, check=True, capture_output=True)


def works(shell: SshShell) -> bool:
    return shell.run(["true"], timeout=60).status == 0


# ---- keys ------------------------------------------------------------------------------------------------------------


def test_a_key_of_the_agent_logs_in(sshd: Sshd, loop: EventLoop, agent: Path, tmp_path: Path) -> None:
    add_to(agent, keygen(tmp_path / "other"), sshd.key)
    extra = f"Host n0\n  IdentityFile none\n  IdentityAgent {agent}"
    with dialing(loop, sshd.ssh_config(extra=extra, path=tmp_path / "config")) as dialer:
        shell = dialer.dial("n0")
        assert works(shell)
        assert not shell.prompted


@pytest.mark.parametrize("kind", ["rsa", "ecdsa"])
def test_other_kinds_of_keys_log_in_from_file_and_agent(
    kind: str, sshd: Sshd, loop: EventLoop, agent: Path, tmp_path: Path
) -> None:
    key = keygen(tmp_path / kind, kind=kind)
    with sshd.authorized.open("a") as authorized:
        authorized.write(sshd.public(key) + "\n")
    extra = f"Host n0\n  IdentityFile {key}\nHost n1\n  IdentityFile none\n  IdentityAgent {agent}"
    add_to(agent, key)
    with dialing(loop, sshd.ssh_config(2, extra=extra, path=tmp_path / "config")) as dialer:
        assert works(dialer.dial("n0"))
        assert works(dialer.dial("n1"))


def test_identities_only_keeps_the_agents_other_keys_to_itself(
    sshd: Sshd, loop: EventLoop, agent: Path, tmp_path: Path
) -> None:
    add_to(agent, sshd.key)
    extra = f"Host n0\n  IdentitiesOnly yes\n  IdentityFile {keygen(tmp_path / 'other')}\n  IdentityAgent {agent}\n"
    config = tmp_path / "config"
    config.write_text(sshd.ssh_config(extra=extra, path=config).read_text().replace(f"IdentityFile {sshd.key}", ""))
    with dialing(loop, config) as dialer, pytest.raises(LoginRefused) as raised:
        dialer.dial("n0")
    assert raised.value.message == f"n0 refuses the login of {sshd.user}: tried {tmp_path}/other; it allows publickey"


def test_a_user_certificate_logs_in(sshd: Sshd, loop: EventLoop, agent: Path, tmp_path: Path) -> None:
    beside, named = keygen(tmp_path / "beside"), keygen(tmp_path / "named", kind="rsa")
    held = keygen(tmp_path / "held")
    sign(sshd.authority, beside, sshd.user)
    certificate = sign(sshd.authority, named, sshd.user).rename(tmp_path / "elsewhere.pub")
    sign(sshd.authority, held, sshd.user)
    add_to(agent, held)  # the agent takes held-cert.pub with it
    extra = (
        f"Host n0\n  IdentityFile {beside}\nHost n1\n  IdentityFile {named}\n  CertificateFile {certificate}\n"
        f"Host n2\n  IdentityFile none\n  IdentityAgent {agent}"
    )
    with dialing(loop, sshd.ssh_config(3, extra=extra, path=tmp_path / "config")) as dialer:
        for host in ("n0", "n1", "n2"):
            assert works(dialer.dial(host))


def test_a_passphrase_is_prompted_for_once_for_many_hosts(sshd: Sshd, loop: EventLoop, tmp_path: Path) -> None:
    key = keygen(tmp_path / "locked", passphrase="open sesame")
    with sshd.authorized.open("a") as authorized:
        authorized.write(sshd.public(key) + "\n")
    config = sshd.ssh_config(12, extra=f"Host n*\n  IdentityFile {key}", path=tmp_path / "config")
    config.write_text(config.read_text().replace(f"IdentityFile {sshd.key}", ""))
    person = Person({f"Passphrase for {key}: ": "open sesame"})
    with dialing(loop, config, person) as dialer:
        with ThreadPoolExecutor(12) as pool:
            shells = list(pool.map(dialer.dial, [f"n{i}" for i in range(12)]))
        assert all(map(works, shells))
        assert [title for _, title, _ in person.requests] == [f"Passphrase for {key}"]
        assert not any(shell.prompted for shell in shells)
    # as long as a person takes at least: whoever dials after the answer is asked again
    declining = Person({f"Passphrase for {key}: ": None}, takes=2.0)
    together = threading.Barrier(12)

    def dial(host: str) -> SshShell:
        together.wait(10)
        return dialer.dial(host)

    with dialing(loop, config, declining) as dialer, ThreadPoolExecutor(12) as pool:
        tries = [pool.submit(dial, f"n{i}") for i in range(12)]
        assert all(isinstance(attempt.exception(30), LoginNeeded) for attempt in tries)
    assert len(declining.requests) == 1


def test_a_key_without_a_passphrase_goes_first_without_a_prompt(sshd: Sshd, loop: EventLoop, tmp_path: Path) -> None:
    locked = keygen(tmp_path / "locked", passphrase="x")
    person = Person({})
    config = sshd.ssh_config(extra=f"Host n0\n  IdentityFile {locked}", path=tmp_path / "config")
    with dialing(loop, config, person) as dialer:
        assert works(dialer.dial("n0"))
    assert person.requests == []


def test_a_passphrase_is_not_prompted_for_where_the_key_would_not_do(
    sshd: Sshd, loop: EventLoop, tmp_path: Path
) -> None:
    locked = keygen(tmp_path / "locked", passphrase="x")
    config = sshd.ssh_config(extra=f"Host n0\n  IdentityFile {locked}", path=tmp_path / "config")
    config.write_text(config.read_text().replace(f"IdentityFile {sshd.key}", ""))
    person = Person({})
    with dialing(loop, config, person) as dialer, pytest.raises(LoginRefused):
        dialer.dial("n0")
    assert person.requests == []


def test_a_headless_dial_says_which_passphrase_it_would_need(sshd: Sshd, loop: EventLoop, tmp_path: Path) -> None:
    key = keygen(tmp_path / "locked", passphrase="x")
    with sshd.authorized.open("a") as authorized:
        authorized.write(sshd.public(key) + "\n")
    config = sshd.ssh_config(extra=f"Host n0\n  IdentityFile {key}", path=tmp_path / "config")
    config.write_text(config.read_text().replace(f"IdentityFile {sshd.key}", ""))
    with dialing(loop, config) as dialer, pytest.raises(LoginNeeded) as raised:
        dialer.dial("n0")
    assert raised.value.message == f"n0 needs a passphrase for {key}, and nobody can be asked"
    assert raised.value.hint.startswith("set up a key without a passphrase")


def test_a_key_that_others_may_read_is_not_used_as_in_openssh_and_the_refusal_says_so(
    sshd: Sshd, loop: EventLoop, tmp_path: Path
) -> None:
    open_key = tmp_path / "open"
    open_key.write_bytes(sshd.key.read_bytes())
    open_key.chmod(0o644)
    config = sshd.ssh_config(
        extra=f"Host n0\n  IdentitiesOnly yes\n  IdentityFile {open_key}", path=tmp_path / "config"
    )
    config.write_text(config.read_text().replace(f"IdentityFile {sshd.key}", ""))
    ssh = [program("ssh"), "-F", str(config), "-o", "BatchMode=yes", "n0", "true"]
    assert "bad permissions" in subprocess.run(ssh, capture_output=True, text=True, timeout=40, check=False).stderr
    with dialing(loop, config) as dialer, pytest.raises(LoginRefused) as raised:
        dialer.dial("n0")
    assert raised.value.message == (
        f"n0 refuses the login of {sshd.user}: not used: {open_key} (its mode is 0644, so others may use it);"
        " tried no other key; it allows publickey"
    )
    assert raised.value.hint == f"chmod 600 {open_key}"
    open_key.chmod(0o600)
    with dialing(loop, config) as dialer:
        assert works(dialer.dial("n0"))


def test_batch_mode_is_no_login_that_a_person_could_do(sshd: Sshd, loop: EventLoop, tmp_path: Path) -> None:
    key = keygen(tmp_path / "locked", passphrase="x")
    with sshd.authorized.open("a") as authorized:
        authorized.write(sshd.public(key) + "\n")
    config = sshd.ssh_config(extra=f"Host n0\n  BatchMode yes\n  IdentityFile {key}", path=tmp_path / "config")
    config.write_text(config.read_text().replace(f"IdentityFile {sshd.key}", ""))
    with dialing(loop, config, Person({})) as dialer, pytest.raises(LoginRefused) as raised:
        dialer.dial("n0")
    assert raised.value.message == f"n0 needs a passphrase for {key}, and BatchMode in its ssh config forbids prompts"
    assert not raised.value.can_log_in


# ---- questions of the server -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def asking(sshd: Sshd, loop: EventLoop, tmp_path: Path, script: Script, ask: AskUser | None = None) -> Iterator[Dialer]:
    """A dialer to a server that follows a script, as host `asker`."""
    with ParamikoServer.start(sshd.host_keys["ed25519"], script) as server:
        known = tmp_path / "known"
        known.write_text(f"[127.0.0.1]:{server.port} {sshd.public(sshd.host_keys['ed25519'])}\n")
        extra = f"Host asker\n  HostName 127.0.0.1\n  Port {server.port}\n  UserKnownHostsFile {known}\n"
        with dialing(loop, sshd.ssh_config(extra=extra, path=tmp_path / "config"), ask) as dialer:
            yield dialer


TWO_ROUNDS = (
    ("Second factor", (("\x1b[31mPasscode or option: ", False),), ("push",)),
    ("", (("Code: ", True), ("Pin: ", False)), ("123", "9")),
)
RIGHT: dict[str, str | None] = {"Passcode or option: ": "push", "Code: ": "123", "Pin: ": "9"}


def test_a_second_factor_of_several_rounds(sshd: Sshd, loop: EventLoop, tmp_path: Path) -> None:
    script, person = Script(("keyboard-interactive",), rounds=TWO_ROUNDS), Person(RIGHT)
    with asking(sshd, loop, tmp_path, script, person) as dialer:
        shell = dialer.dial("asker")
        assert shell.run(["true"], timeout=60).stdout == b"ran true"
        assert shell.prompted
    assert person.requests[0] == ("asker", "Second factor", "Passcode or option: ")


def test_the_menu_that_sshd_puts_before_the_question_of_pam_is_no_part_of_it(
    sshd: Sshd, loop: EventLoop, tmp_path: Path
) -> None:
    menu = "Duo two-factor login for ana\n\n 1. Duo Push to XXX-XXX-1234\n"
    question = "Passcode or option (1-1): "
    rounds = (("", ((f"{menu}\n{question}", False),), ("1",)),)
    heard: list[tuple[object, ...]] = []

    def ask(*asked: object) -> tuple[str, ...]:
        heard.append(asked[:-1])
        return ("1",)

    with asking(sshd, loop, tmp_path, Script(("keyboard-interactive",), rounds=rounds), ask) as dialer:
        assert works(dialer.dial("asker"))
    assert heard == [("asker", question, f"say it\n{menu}".rstrip(), ((question, False),))]


def test_hosts_that_wait_for_their_question_hold_no_connection_and_ring_no_phone(
    sshd: Sshd, loop: EventLoop, tmp_path: Path
) -> None:
    """A server cuts off who is silent for two minutes: with 64 hosts that ask, most would never get their turn."""
    script = Script(("keyboard-interactive",), rounds=(("Second factor", (("Code: ", False),), ("123",)),))
    titles: list[str] = []

    def ask(host: str, *_: object) -> tuple[str, ...]:
        titles.append(host)
        until(lambda: len(dialer._opening) == 1, "the others have let go of their connections")
        assert script.attempts.count("keyboard-interactive") == len(titles)
        return ("123",)

    with asking(sshd, loop, tmp_path, script, ask) as dialer:
        config = tmp_path / "config"
        config.write_text(config.read_text().replace("Host asker", "Host asker*"))
        with ThreadPoolExecutor(6) as pool:
            shells = list(pool.map(dialer.dial, [f"asker{i}" for i in range(6)]))
        assert all(map(works, shells))
    assert sorted(titles) == [f"asker{i}" for i in range(6)]


def test_a_key_and_then_a_second_factor(sshd: Sshd, loop: EventLoop, tmp_path: Path) -> None:
    key = Ed25519Key.from_private_key_file(str(sshd.key))
    script = Script(("publickey", "keyboard-interactive"), rounds=TWO_ROUNDS, key=key)
    with asking(sshd, loop, tmp_path, script, Person(RIGHT)) as dialer:
        assert works(dialer.dial("asker"))
    assert script.attempts == ["publickey", "keyboard-interactive"]


def test_a_push_without_a_question_counts_as_one(sshd: Sshd, loop: EventLoop, tmp_path: Path) -> None:
    script = Script(("keyboard-interactive",), rounds=(("A push is on its way", (), ()),))
    with asking(sshd, loop, tmp_path, script, Person({})) as dialer:
        assert dialer.dial("asker").prompted
    script.rounds = (("A push is on its way", (), ("not", "taken")),)
    with asking(sshd, loop, tmp_path, script, Person({})) as dialer, pytest.raises(LoginRefused) as raised:
        dialer.dial("asker")
    assert raised.value.prompted


def test_a_password_logs_in_and_is_in_no_error(sshd: Sshd, loop: EventLoop, tmp_path: Path) -> None:
    script = Script(("password",), password="hunter2")
    question = f"{sshd.user}@127.0.0.1's password: "
    with asking(sshd, loop, tmp_path, script, Person({question: "hunter2"})) as dialer:
        assert works(dialer.dial("asker"))
    script.password = "another"
    with (
        asking(sshd, loop, tmp_path, script, Person({question: "hunter2"})) as dialer,
        pytest.raises(LoginRefused) as raised,
    ):
        dialer.dial("asker")
    assert str(raised.value) == "asker: the server refused the password (check the password, then log in again)"
    assert script.attempts.count("password") == 2


def test_a_wrong_code_is_not_tried_again(sshd: Sshd, loop: EventLoop, tmp_path: Path) -> None:
    script = Script(("keyboard-interactive,password",), rounds=TWO_ROUNDS)
    person = Person({**RIGHT, "Code: ": "000"})
    with asking(sshd, loop, tmp_path, script, person) as dialer, pytest.raises(LoginRefused) as raised:
        dialer.dial("asker")
    assert raised.value.message == "asker: the server refused the answer"
    assert script.attempts[-1:] == ["keyboard-interactive"]


def test_a_declined_question_needs_a_login(sshd: Sshd, loop: EventLoop, tmp_path: Path) -> None:
    script = Script(("keyboard-interactive",), rounds=TWO_ROUNDS)
    person = Person({"Passcode or option: ": None})
    with asking(sshd, loop, tmp_path, script, person) as dialer, pytest.raises(LoginNeeded) as raised:
        dialer.dial("asker")
    assert raised.value.message == "asker asked for Passcode or option and got no answer"


@pytest.mark.parametrize(
    ("method", "what"),
    [("password", "a password"), ("keyboard-interactive", "a password or a second factor (keyboard-interactive)")],
)
def test_without_a_person_nothing_that_prompts_is_started(
    method: str, what: str, sshd: Sshd, loop: EventLoop, tmp_path: Path
) -> None:
    script = Script((method,), rounds=TWO_ROUNDS)
    with asking(sshd, loop, tmp_path, script) as dialer, pytest.raises(LoginNeeded) as raised:
        dialer.dial("asker")
    assert raised.value.message == f"asker needs {what}, and nobody can be asked"
    assert method not in script.attempts
