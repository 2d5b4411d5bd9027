"""Connections that end: the row says it, the numbers of before have their age, and they come back by themselves."""

from __future__ import annotations

import contextlib
import http.server
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.end_to_end.product import Cluster, Product, Screen, step_line
from tests.lab.daemons import until
from tests.lab.sshd import Sshd, keygen

StartCluster = Callable[..., Cluster]

SHARED = """
[cluster]
name = "lab"
login = "n0"
nodes = ["n1", "n2"]
[[run]]
name = "llm"
log = "{work}/train.log"
kill_switch = "{work}/kill"
"""


def test_a_killed_connection_comes_back_by_itself(product: Product, cluster: StartCluster) -> None:
    nodes = cluster(2)
    screen = product.screen("n0", "n1")
    screen.until_shown("ssh 2/2")
    before = set(nodes.sessions_of(1))
    assert before
    nodes.end_sessions(1)
    nodes.nvml[1].set(0, utilization=66)
    screen.until_line("n1 ", r"\b66\b")
    screen.until_shown("ssh 2/2")
    until(lambda: set(nodes.sessions_of(1)) - before, "a new session")
    assert before.isdisjoint(nodes.sessions_of(1))


def test_a_node_that_restarts_its_sshd_is_down_with_a_sentence_and_then_up(
    product: Product, cluster: StartCluster
) -> None:
    nodes = cluster(1)
    screen = product.screen("n0", columns=200)
    screen.until_line("n0 ", r"\b97\b")
    nodes.sshd.stop()
    screen.until_line("n0 ", r"✗.n0 .* late \d+s: ")
    screen.until_shown(r"ssh 0/1 n0 no answer \d+s")
    screen.until_shown(r"n0: late \d+s: .*refuses connections")
    nodes.nvml[0].set(0, utilization=66)
    nodes.sshd.run()
    screen.keys("r")
    screen.until_line("n0 ", r"\b66\b")
    screen.until_shown("ssh 1/1")


def test_numbers_of_before_are_dim_and_have_their_age(product: Product, cluster: StartCluster) -> None:
    nodes = cluster(1)
    config = product.config('[cluster]\nnodes = ["n0"]\nevery = "0.5s"\n')
    screen = product.screen("--config", str(config))
    screen.until_line("n0 ", r"\b97\b")
    fresh = screen.style_of("97 ").fg
    for pid in nodes.sessions_of(0):
        os.kill(pid, signal.SIGSTOP)
    screen.until_line("n0 ", r"\b97\b.*late \d+s")
    assert screen.style_of("97 ").fg != fresh
    for pid in nodes.sessions_of(0):
        os.kill(pid, signal.SIGCONT)
    screen.until_gone(r"late \d+s")
    assert screen.style_of("97 ").fg == fresh


def test_shared_files_are_taken_over_when_the_login_host_goes_and_no_line_comes_twice(
    product: Product, cluster: StartCluster
) -> None:
    nodes = cluster(3)
    log = product.work / "train.log"
    log.write_text("".join(step_line(step) for step in range(1, 6)))
    config = product.config(SHARED.format(work=product.work))
    # The login host has an sshd of its own, so that it alone can go.
    with Sshd.start(product.folder / "login") as login:
        extra = f"Host n0\n  Port {login.port}\n  IdentityFile {login.key}\n  UserKnownHostsFile {login.known_hosts}\n"
        product.ssh_config = nodes.sshd.ssh_config(3, extra=extra)
        follow_over_the_loss_of(login, log, product.screen("--config", str(config), columns=160, rows=50), product)


def follow_over_the_loss_of(login: Sshd, log: Path, screen: Screen, product: Product) -> None:
    screen.until_line("llm", r"\b5\b")
    screen.until_shown(r"llm  n0:")

    login.stop()
    screen.until_shown(r"llm  n[12]:")
    with log.open("a") as more:
        more.write(step_line(6))
    screen.until_shown(r"iteration +6/")
    (product.work / "kill").touch()
    screen.until_line("llm", "KILL")
    text = screen.text()
    assert [text.count(f"iteration {step:8}/") for step in range(1, 7)] == [1] * 6

    login.run()
    screen.keys("r")
    screen.until_shown(r"llm  n0:")
    with log.open("a") as more:
        more.write(step_line(7))
    screen.until_shown(r"iteration +7/")
    text = screen.text()
    assert [text.count(f"iteration {step:8}/") for step in range(1, 8)] == [1] * 7


LOGIN_SCRIPT = """\
#!/bin/sh
case $SSH_CONNECTION in
*" 127.0.10.2 "*) printf 'Welcome to n1. ' ;;
*" 127.0.10.3 "*) echo 'This account is currently not available.'; exit 1 ;;
esac
exec sh -c "$SSH_ORIGINAL_COMMAND"
"""


def test_hosts_that_print_refuse_or_speak_http_say_what_is_wrong(product: Product, tmp_path: Path) -> None:
    """A login script that prints hides no node; every other row says what `check` says."""
    script, wrong = tmp_path / "login-script", keygen(tmp_path / "wrong")
    script.write_text(LOGIN_SCRIPT)
    script.chmod(0o755)
    with Sshd.start(tmp_path / "sshd", ForceCommand=str(script)) as sshd, web_server() as port:
        extra = f"Host web\n  HostName 127.0.0.1\n  Port {port}\n"
        product.ssh_config = sshd.ssh_config(3, extra=extra, path=tmp_path / "ssh_config")
        tail = f"  IdentitiesOnly yes\n  IdentityFile {wrong}\n  IdentityAgent none\n  User {sshd.user}\n"
        known = f"  Port {sshd.port}\n  UserKnownHostsFile {sshd.known_hosts}\n  GlobalKnownHostsFile none\n"
        own = f"Host other\n  HostName 127.0.10.9\n{tail}{known}"
        product.ssh_config.write_text(own + product.ssh_config.read_text().replace("Host *\n", "Host * !other\n"))
        hosts = ("n1", "n2", "web", "other")
        done = product.run("snapshot", *hosts, "--wait=20s")
        checked = product.run("check", "--config", str(product.config(f"[cluster]\nnodes = {list(hosts)}\n")))
    rows = {line.split()[0]: line for line in done.stdout.splitlines() if line.split()[:1]}
    assert re.match(r"n1 +ok ", rows["n1"]), done.stdout + done.stderr
    for host, words in {
        "n2": r"(?:its probe|it) ended with status 1: This account is currently not available\.",
        "web": r"127\.0\.0\.1:\d+ speaks HTTP, not SSH \(“<!DOCTYPE HTML>”\)",
        "other": rf"refuses the login of {sshd.user}: tried {wrong}; it allows publickey",
    }.items():
        assert re.match(rf"{host} +down .*{words}", rows[host]), done.stdout
        assert re.search(rf"✗ +{host} .*{words}", checked.stdout), checked.stdout
    assert re.search(r"✓ +n1 +probe ", checked.stdout), checked.stdout


@contextlib.contextmanager
def web_server() -> Iterator[int]:
    """A port that speaks HTTP."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()
