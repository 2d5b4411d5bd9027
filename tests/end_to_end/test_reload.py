"""A dashboard that runs takes over a changed config, and keeps what has not changed."""

from __future__ import annotations

from collections.abc import Callable

from tests.end_to_end.product import PATIENCE, QUICK, Cluster, Product, step_line
from tests.lab.daemons import until

CONFIG = """
[cluster]
login = "n0"
nodes = ["n[0-{last}]"]
[[run]]
name = "llm"
log = "{work}/train.log"
"""
OTHER = """
[[run]]
name = "other"
log = "{work}/other.log"
"""


def test_a_changed_config_is_taken_over_and_open_connections_stay(
    product: Product, cluster: Callable[..., Cluster]
) -> None:
    nodes = cluster(3)
    (product.work / "train.log").write_text("".join(step_line(step) for step in range(1, 300)))
    (product.work / "other.log").write_text("".join(step_line(step) for step in range(1, 42)))
    first, more = CONFIG.format(last=1, work=product.work), OTHER.format(work=product.work)
    file = product.config(first)
    screen = product.screen("--config", str(file), columns=170, rows=45)
    screen.until_line("llm", r"\b299\b")
    screen.until_shown("ssh 2/2")
    servers = [nodes.servers_of(number) for number in (0, 1)]
    screen.keys(" ")
    screen.until_shown("1 marked")
    screen.keys("2/")
    screen.until_shown("filter GPUs")
    screen.keys("n0\r")
    screen.until_shown("/n0", "1 marked")

    file.write_text(CONFIG.format(last=2, work=product.work) + more)
    screen.until_shown("config loaded")  # a toast: it has gone again when a busy machine has connected to n2
    screen.until_shown("ssh 3/3")
    screen.until_line("other", r"\b41\b")
    screen.until_line("llm", r"\b299\b")
    assert [nodes.servers_of(number) for number in (0, 1)] == servers, "nothing was connected to again"
    screen.until_shown("/n0", "1 marked")

    file.write_text(first.replace("[[run]]", "[[rum]]"))
    again = "Correct it: it is read again when you save it."
    screen.until_shown("config refused: the old one stays in use", r"rum", f"{file.name}|{file}", again)
    screen.until_line("other", r"\b41\b")
    file.write_text(first + "name =\n")
    screen.until_shown(r"line \d+")

    file.write_text(first.replace("n[0-1]", "n0"))
    screen.until_shown("ssh 1/1")
    until(lambda: not nodes.servers_of(1), "n1 is left", PATIENCE)
    screen.until_gone(r"\bother\b")
    assert nodes.servers_of(0) == servers[0]
    assert "ssh 1/1" in screen.text()

    screen.until_shown(r"\d\d:\d\d:\d\dZ")
    file.write_text(first.replace("n[0-1]", "n0") + '[dashboard]\ntime = "local"\n')
    screen.until_gone(r"\d\d:\d\d:\d\dZ")
    assert "from the next start" not in screen.text()

    screen.keys(":")
    screen.until_shown(r"│ +: ")
    screen.keys("reload config\r")
    screen.until_shown("config loaded")
    with (product.work / "train.log").open("a") as opened:
        opened.write(step_line(300))
    screen.until_line("llm", r"\b300\b")
    assert screen.leave() < QUICK
