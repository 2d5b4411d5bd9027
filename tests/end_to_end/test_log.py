"""The log on the screen: bounded whatever comes, and text from strangers stays text."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.end_to_end.product import QUICK, Cluster, Product, Screen, step_line

StartCluster = Callable[..., Cluster]


def follow(product: Product, cluster: StartCluster, log: Path) -> Screen:
    cluster(1)
    config = product.config(f'[cluster]\nlogin = "n0"\nnodes = ["n0"]\n[[run]]\nname = "llm"\nlog = "{log}"\n')
    screen = product.screen("--config", str(config), columns=160)
    screen.until_shown("ssh 1/1", "llm")
    return screen


def write_fast(log: Path, seconds: float, per_second: int) -> int:
    """Write lines for some time, a step line every twentieth; the last step."""
    step, end, pause = 0, time.monotonic() + seconds, threading.Event()
    with log.open("a") as opened:
        while time.monotonic() < end:
            for number in range(per_second // 20):
                if number % 20 == 0:
                    step += 1
                    opened.write(step_line(step))
                opened.write(f"[rank{number % 8}] loading shard {number:06} of the corpus, nothing to see here\n")
            opened.flush()
            pause.wait(0.05)
    return step


def test_a_thousand_lines_a_second_drop_lines_and_no_step(product: Product, cluster: StartCluster) -> None:
    log = product.work / "train.log"
    log.write_text(step_line(0))
    screen = follow(product, cluster, log)
    screen.until_shown(r"iteration +0/")
    last = write_fast(log, 3.0, 2000)
    screen.until_line("llm", rf"\b{last}\b")
    screen.until_shown(r"\+[\d,]+ lines dropped")
    assert screen.leave() < QUICK


def test_a_log_of_batches_shows_their_epoch_in_the_row_and_in_the_details(
    product: Product, cluster: StartCluster
) -> None:
    log = product.work / "train.log"
    lines = [f"Epoch: [{epoch}][{batch}/391]  Loss 2.1 (2.3)\n" for epoch in range(4) for batch in (60, 120)]
    log.write_text("".join(lines))
    screen = follow(product, cluster, log)
    screen.until_line("llm", r"epoch 3 120/391\b")
    screen.keys("\r")
    screen.until_shown(r"step +1,293 \(epoch 3 120/391\)")
    screen.keys("\x1b")
    screen.until_gone(r"step +1,293 \(epoch")
    with log.open("a") as opened:
        opened.write("Epoch: [3][180/391]  Loss 2.0 (2.3)\n")
    screen.until_line("llm", r"epoch 3 180/391\b")
    screen.leave()
    narrow = product.screen("--config", str(product.work / "c.toml"), columns=80, rows=24)
    narrow.until_line("llm", r"\be(poch )?3 180/391\b")


HOSTILE = (
    "\x1b]0;stolen title\x07\x1b[2J\x1b[31mred\x1b[0m \x1bPtmux;\x1b\\ \x9b5m \x1b]52;c;c3RvbGVu\x07"
    " [bold]bold[/bold] [@click=app.quit]quit[/] \u202ebackwards\u202c bell\x07 \x0e\x00end-of-hostile\n"
)


def test_what_is_in_a_log_never_commands_the_terminal(product: Product, cluster: StartCluster) -> None:
    log = product.work / "train.log"
    log.write_bytes(HOSTILE.encode("utf-8", "surrogateescape"))
    screen = follow(product, cluster, log)
    screen.until_shown("end-of-hostile", r"\[bold\]bold\[/bold\]", r"\[@click=app\.quit\]quit")
    assert screen.leave() < QUICK
    raw = bytes(screen.screen)
    for never in (
        b"\x1b]0;stolen",
        b"\x1b]52;c;c3RvbGVu",
        b"\x1bPtmux",
        b"\xc2\x9b",
        "\u202e".encode(),
        b"\x0e",
        b"\x00",
    ):
        assert never not in raw
    # The pointer's shape is set back by the screen itself, on leaving.
    assert re.findall(rb"[^\x1b]*\x07", raw) == [b"]22;default\x07"]


def test_the_file_is_read_to_its_first_line_and_searched_as_a_whole(product: Product, cluster: StartCluster) -> None:
    """`g`, `/`, `n` and `N` over SSH, in a file of which the dashboard knows the last lines; the host goes down."""
    nodes = cluster(1)
    log = product.work / "train.log"
    with log.open("w") as opened:
        opened.write("[rank0] the first line of all; TOKEN=hf_abcdefghijklmnopqrstuvwxyzabcdef\n")
        for step in range(1, 30_001):
            opened.write(step_line(step))
            if step % 10_000 == 0:
                opened.write(f"[rank{step // 10_000}] \x1b[31mneedle\x1b[0m $(touch {product.work}/hit); found\n")
        opened.writelines(step_line(step) for step in range(30_001, 30_500))
    config = product.config(f'[cluster]\nlogin = "n0"\nnodes = ["n0"]\n[[run]]\nname = "llm"\nlog = "{log}"\n')
    screen = product.screen("--config", str(config), columns=160)
    screen.until_line("llm", r"\b30,?499\b")
    screen.keys("44")
    screen.until_shown("zoomed; z restores")
    screen.keys("g")
    screen.until_shown(r"the first line of all; TOKEN=\*\*\*", r"iteration +1/", r"at 0\.0% of 9\.\d MiB; G to the end")
    screen.keys("G")
    screen.until_shown(r"iteration +30499/", "follow")

    screen.keys("/needle $(")
    screen.until_shown("no match for “needle", "Enter searches the whole file")
    screen.keys("\r")
    screen.until_shown(r"\[rank3\] needle", r"hit 3 of 3 in all 9\.\d MiB")
    screen.keys("n")
    screen.until_shown(r"\[rank1\] needle", "hit 1 of 3", r"iteration +10001/")
    screen.keys("n")
    screen.until_shown(r"\[rank2\] needle", "hit 2 of 3")
    screen.keys("N")
    screen.until_shown(r"\[rank1\] needle", "hit 1 of 3")
    assert not (product.work / "hit").exists()

    nodes.sshd.stop()
    screen.until_shown(r"ssh 0/1|retr")
    screen.keys("g")
    screen.until_shown(r"n0.*(not connected|lost|refused|closed|unreachable|cannot)")
    assert screen.leave() < QUICK
