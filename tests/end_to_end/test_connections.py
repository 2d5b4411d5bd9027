"""Connections that end: the row says it, the numbers of before have their age, and they come back by themselves."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from tests.end_to_end.product import Cluster, Product, Screen, step_line, until
from tests.lab.sshd import Sshd

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
    nodes.end_sessions(1)
    nodes.nvml[1].set(0, temperature=66)
    screen.until_line(" n1 ", r"\b66\b")
    screen.until_shown("ssh 2/2")
    until(lambda: set(nodes.sessions_of(1)) - before, "a new session")
    assert before.isdisjoint(nodes.sessions_of(1))


def test_a_node_that_restarts_its_sshd_is_down_with_a_sentence_and_then_up(
    product: Product, cluster: StartCluster
) -> None:
    nodes = cluster(1)
    screen = product.screen("n0", columns=200)
    screen.until_line(" n0 ", r"\b41\b")
    nodes.sshd.stop()
    screen.until_line(" n0 ", r"✗ n0 .* silent \d+s: ")
    screen.until_shown(r"ssh 0/1 n0 \d+s")
    screen.until_shown(r"n0: silent \d+s: .*refuses connections")
    nodes.nvml[0].set(0, temperature=66)
    nodes.sshd.run()
    screen.keys("r")
    screen.until_line(" n0 ", r"\b66\b")
    screen.until_shown("ssh 1/1")


def test_numbers_of_before_are_dim_and_have_their_age(product: Product, cluster: StartCluster) -> None:
    nodes = cluster(1)
    config = product.config('[cluster]\nnodes = ["n0"]\nevery = "0.5s"\n')
    screen = product.screen("--config", str(config))
    screen.until_line(" n0 ", r"\b41\b")
    fresh = screen.style_of("41 ").fg
    for pid in nodes.sessions_of(0):
        os.kill(pid, signal.SIGSTOP)
    screen.until_line(" n0 ", r"\b41\b.*late \d+s")
    assert screen.style_of("41 ").fg != fresh
    for pid in nodes.sessions_of(0):
        os.kill(pid, signal.SIGCONT)
    screen.until_gone(r"late \d+s")
    assert screen.style_of("41 ").fg == fresh


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
