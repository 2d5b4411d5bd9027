"""Logins that ask a person, and host keys that nobody has confirmed."""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from paramiko import Ed25519Key

from tests.end_to_end.product import PATIENCE, QUICK, Cluster, Product, Screen, environment
from tests.lab.disks import OF_ANY_DISK
from tests.lab.paramiko_server import ParamikoServer, Script
from tests.lab.sshd import Sshd, keygen

StartCluster = Callable[..., Cluster]

PASSCODE = "918273"
PASSWORD = "correct horse"


@contextlib.contextmanager
def vault(product: Product, **script: object) -> Iterator[tuple[Script, ParamikoServer]]:
    """A host `vault` that asks for what the script says."""
    folder = product.folder
    host_key, key = keygen(folder / "vault_key"), keygen(folder / "own_key")
    made = Script(key=Ed25519Key.from_private_key_file(str(key)), runs=True, **script)  # type: ignore[arg-type]
    with ParamikoServer.start(host_key, made) as server:
        public = " ".join(Path(f"{host_key}.pub").read_text().split()[:2])
        (folder / "vault_hosts").write_text(f"[127.0.0.1]:{server.port} {public}\n")
        product.ssh_config = folder / "vault_config"
        product.ssh_config.write_text(
            f"Host vault\n  HostName 127.0.0.1\n  Port {server.port}\n  IdentityFile {key}\n  IdentityAgent none\n"
            f"  UserKnownHostsFile {folder}/vault_hosts\n  GlobalKnownHostsFile none\n"
        )
        yield made, server


SECOND_FACTOR = {
    "steps": ("publickey", "keyboard-interactive"),
    "rounds": (("Two factors", (("Passcode: ", False),), (PASSCODE,)),),
}


def test_a_second_factor_is_prompted_for_once_and_a_lost_connection_is_not_redialled(product: Product) -> None:
    with vault(product, **SECOND_FACTOR) as (script, server):
        screen = product.screen("vault", columns=160)
        screen.until_shown("Log in to vault: ", "Passcode", "Esc cancels the login")
        screen.keys(PASSCODE)
        screen.until_shown("•{6}")
        screen.keys("\r")
        screen.until_shown("ssh 1/1")
        assert script.attempts.count("keyboard-interactive") == 1

        server.drop_all()
        # Others are dialled again after a second; this one would send a push to a phone each time.
        screen.until_line("vault", r"login needed: press L")
        screen.until_shown("ssh 0/1 vault login: press L", r" ([3-9]|\d\d)s vault waits for a login")
        assert script.attempts.count("keyboard-interactive") == 1

        screen.keys("L")
        screen.until_shown("Log in to vault: ")
        screen.keys(PASSCODE + "\r")
        screen.until_shown("ssh 1/1")
        assert script.attempts.count("keyboard-interactive") == 2
        assert screen.leave() < QUICK
        assert PASSCODE.encode() not in bytes(screen.screen)


def test_keys_count_from_the_frame_that_shows_the_question(product: Product) -> None:
    with vault(product, steps=("password",), password=PASSWORD):
        screen = product.screen("vault", columns=160)
        deadline = time.monotonic() + PATIENCE
        while b"cancels the login" not in bytes(screen.screen):
            assert time.monotonic() < deadline
            time.sleep(0.001)
        screen.keys(PASSWORD + "\r")
        screen.until_shown("ssh 1/1")


def test_a_wrong_answer_holds_the_host_until_l_asks_again_and_esc_declines(product: Product) -> None:
    with vault(product, steps=("password",), password=PASSWORD) as (script, _):
        screen = product.screen("vault", columns=160)
        screen.until_shown("Log in to vault: ", "assword")
        screen.keys("wrong\r")
        screen.until_line("vault", r"login needed: press L")
        tried = script.attempts.count("password")

        screen.keys("L")
        screen.until_shown("Log in to vault: ")
        screen.keys("\x1b")
        screen.until_gone("Log in to vault: ")
        screen.until_line("vault", r"login needed: press L")
        assert script.attempts.count("password") == tried

        screen.keys("L")
        screen.until_shown("Log in to vault: ")
        screen.keys(PASSWORD + "\r")
        screen.until_shown("ssh 1/1")
        assert PASSWORD.encode() not in bytes(screen.screen)


def test_the_question_of_a_host_that_hangs_up_closes_with_a_sentence(product: Product) -> None:
    with vault(product, steps=("password",), password=PASSWORD) as (script, server):
        screen = product.screen("vault")
        screen.until_shown("Log in to vault: ")
        server.drop_all()
        screen.until_gone("Log in to vault: ")
        screen.until_shown("vault no longer waits for an answer", "login needed: press L")
        assert "password" not in script.attempts


def test_quitting_while_a_question_is_open_is_quick(product: Product) -> None:
    with vault(product, **SECOND_FACTOR):
        screen = product.screen("vault")
        screen.until_shown("Log in to vault: ")
        screen.keys("\x03")
        screen.until_shown("q quits", "Log in to vault: ")
        assert screen.leave("\x11") < QUICK


@pytest.mark.parametrize("script", [SECOND_FACTOR, {"steps": ("password",), "password": PASSWORD}])
def test_headless_there_is_no_prompt_and_the_error_says_what_to_set_up(
    product: Product, script: dict[str, object]
) -> None:
    with vault(product, **script) as (made, _):
        (source,) = product.snapshot("vault", status=3)["sources"]
        assert source["health"] == "down"
        assert "vault" in source["error"]
        assert source["hint"]
        assert {"password", "keyboard-interactive"}.isdisjoint(made.attempts)


# ---- host keys ------------------------------------------------------------------------------------------------------


def fingerprint(sshd: Sshd) -> str:
    result = subprocess.run(
        ["ssh-keygen", "-l", "-f", f"{sshd.host_keys['ed25519']}.pub"], check=True, capture_output=True, text=True
    )
    return result.stdout.split()[1]


def command_in(text: str) -> str:
    """The command that a hint or a mend names."""
    found = re.search(r"accept it with: (ssh .+)", text)
    assert found, text
    return found.group(1).strip()


def test_an_unknown_host_key_is_refused_and_the_very_command_that_is_shown_makes_it_known(
    product: Product, cluster: StartCluster
) -> None:
    nodes = cluster(1)
    known = product.home / "known_hosts"
    nodes.sshd.ssh_config(1, extra=f"Host *\n  UserKnownHostsFile {known}\n")
    done = product.run("check", "n0")
    assert done.returncode == 3
    assert fingerprint(nodes.sshd) in done.stdout
    screen = product.screen("n0")
    screen.until_line("n0 ", "host key is not known")
    screen.keys("2\r")
    screen.until_shown(re.escape(fingerprint(nodes.sshd)), "accept it with: ssh ")
    (source,) = product.snapshot("n0", status=3)["sources"]
    assert fingerprint(nodes.sshd) in source["error"] + source["hint"]
    assert command_in(source["hint"]) in done.stdout
    assert not known.exists()

    ssh = ["sh", "-c", command_in(source["hint"])]
    with Screen(ssh, columns=120, rows=20, env=environment(product.home), cwd=product.work) as person:
        person.until_shown(re.escape(fingerprint(nodes.sshd)), "yes/no")
        person.keys("yes\r")
        assert person.wait(PATIENCE) == 0
    assert known.read_text()
    config = product.config('[cluster]\nnodes = ["n0"]\n' + OF_ANY_DISK)
    assert product.snapshot("--config", str(config))["verdict"] == "well"
    screen.keys("r")
    screen.until_shown("ssh 1/1")


def test_a_changed_host_key_is_refused_loudly_with_both_the_line_and_the_fingerprint(
    product: Product, cluster: StartCluster
) -> None:
    nodes = cluster(1)
    other = keygen(product.folder / "other")
    nodes.sshd.known_hosts.write_text(f"[127.*]:{nodes.sshd.port} {nodes.sshd.public(other)}\n")
    (source,) = product.snapshot("n0", status=3)["sources"]
    assert "changed" in source["error"].lower()
    assert fingerprint(nodes.sshd) in source["error"] + source["hint"]
    assert str(nodes.sshd.known_hosts) in source["error"] + source["hint"]
    done = product.run("check", "n0")
    assert done.returncode == 3
    assert "changed" in done.stdout.lower()
    screen = product.screen("n0", columns=200)
    screen.until_line("n0 ", r"(?i)changed")
