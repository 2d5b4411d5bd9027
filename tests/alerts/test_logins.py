"""Unattended, the daemon uses no agent of a login session and no key that prompts. It says what to do."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.alerts.daemon import AlertDaemon
from tests.end_to_end.product import Cluster
from tests.lab.ntfy_server import NtfyServer
from tests.lab.sshd import keygen, program

MakeDaemon = Callable[..., AlertDaemon]


def test_an_agent_of_the_session_and_a_key_that_prompts_are_not_counted_on(
    nodes: Cluster, ntfy: NtfyServer, make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    """The key has a passphrase, and an agent that holds it: everything is ok, until whoever unlocked it logs out."""
    locked = keygen(tmp_path / "locked", passphrase="correct horse")
    nodes.sshd.authorized.write_text(f"{nodes.sshd.public(nodes.sshd.key)}\n{nodes.sshd.public(locked)}\n")
    agent = tmp_path / "agent"
    asker = tmp_path / "asker"
    asker.write_text('#!/bin/sh\necho "correct horse"\n')
    asker.chmod(0o755)
    serving = subprocess.Popen([program("ssh-agent"), "-D", "-a", str(agent)], stdout=subprocess.DEVNULL)
    try:
        daemon = make_daemon(SSH_AUTH_SOCK=str(agent))
        own = f"Host n0\n  IdentityFile {locked}\n  IdentitiesOnly yes\n  IdentityAgent SSH_AUTH_SOCK\n"
        daemon.ssh_config = nodes.sshd.ssh_config(2, extra=own, path=tmp_path / "ssh_config")
        text = daemon.ssh_config.read_text().replace("IdentityFile " + str(nodes.sshd.key), "")
        daemon.ssh_config.write_text(f"{text}\nHost n1\n  IdentityFile {nodes.sshd.key}\n")
        added = {**daemon.env, "SSH_ASKPASS": str(asker), "SSH_ASKPASS_REQUIRE": "force", "DISPLAY": ":0"}
        for _ in range(50):
            done = subprocess.run([program("ssh-add"), str(locked)], env=added, capture_output=True, check=False)
            if done.returncode == 0:
                break
        assert done.returncode == 0, done.stderr
        with_agent = daemon.run("check", f"--config={daemon.config}", f"--ssh-config={daemon.ssh_config}")
        assert "✓ n0           login        no prompt" in with_agent.stdout

        alone = daemon.run("check", "--headless", f"--config={daemon.config}", f"--ssh-config={daemon.ssh_config}")
        assert alone.returncode == 3
        assert "the SSH agent of this login session was not used" in alone.stdout
        assert f"n0 needs a passphrase for {locked}, and nobody can be asked" in alone.stdout
        assert "→ set up a key without a passphrase (IdentityFile)" in alone.stdout
        assert "✓ n1           login        no prompt" in alone.stdout

        daemon.start()
        assert daemon.until("agent")["words"].startswith("SSH_AUTH_SOCK is not used")
        refused = daemon.until("source", source="node:n0", health="down")
        assert f"needs a passphrase for {locked}, and nobody can be asked" in refused["error"]
        daemon.until("source", source="node:n1", health="ok")
        assert daemon.is_running
    finally:
        serving.kill()
        serving.wait(10)
