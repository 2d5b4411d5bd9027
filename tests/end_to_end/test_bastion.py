"""A dashboard on a laptop and the daemon on a bastion, over a real sshd: one of them tells people, never both."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.end_to_end.product import PROGRAM, Cluster, Product, environment
from tests.lab.daemons import until

RULE = '[[rule]]\ntype = "kill-switch-left"\nfor = "0s"\nafter = "1s"\nseverity = "critical"\n'


class Bastion:
    """The daemon with a home of its own, and what it and the laptop have told people."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "bastion"
        self.home.mkdir()
        self.env = environment(self.home)
        self.config = folder / "bastion.toml"
        self.sent_file = folder / "bastion.told"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "--alerts-only", "--config", str(self.config)], env=self.env, cwd=self.home, stdout=log,
                stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(120)
            self.process = None

    @property
    def command(self) -> list[str]:
        """How its program is called by whoever logs in."""
        return ["env", "-i", *(f"{name}={value}" for name, value in self.env.items()), PROGRAM]

    def status(self) -> dict[str, Any]:
        done = subprocess.run([*self.command, "status", "--json"], capture_output=True, check=False, timeout=60)
        found: dict[str, Any] = json.loads(done.stdout)
        return found


def settings(folder: Path, sent_file: Path, more: str = "") -> str:
    """Two runs, and one channel that keeps what it is told."""
    keep = f"cat >> {shlex.quote(str(sent_file))}; echo >> {shlex.quote(str(sent_file))}"
    runs = "".join(f'[[run]]\nname = "{name}"\nkill_switch = "{folder / name}"\n' for name in ("one", "two"))
    channel = f'[[notify]]\ntype = "command"\nname = "keep"\ncommand = ["sh", "-c", {json.dumps(keep)}]\n'
    return f'{runs}{RULE}{channel}severity = "critical"\nheartbeat = false\n{more}'


def rules(sent_file: Path) -> list[str]:
    """The alerts that people were told of, by rule and run, in order; a line each."""
    lines = sent_file.read_text().splitlines() if sent_file.exists() else []
    notices = [notice for line in lines if line.strip() for notice in json.loads(line)["notices"]]
    return [f"{one['rule']} {one['subject']}" for notice in notices for one in notice["alerts"]]


@contextmanager
def bastion(folder: Path) -> Iterator[Bastion]:
    made = Bastion(folder)
    made.config.write_text(settings(folder, made.sent_file))
    made.start()
    try:
        yield made
    finally:
        made.kill()


def test_the_daemon_notifies_the_laptop_shows_and_takes_over_when_it_is_gone(
    tmp_path: Path, product: Product, cluster: Callable[..., Cluster]
) -> None:
    cluster(1)
    laptop = tmp_path / "laptop.told"
    with bastion(tmp_path) as there:
        until(lambda: "health=ok" in (there.home / "log").read_text(), "the daemon reads")
        (tmp_path / "one").touch()
        until(lambda: rules(there.sent_file) == ["kill-switch-left run:one"], "the daemon tells of the switch")
        daemon = f'[daemon]\nhost = "n0"\nevery = "2s"\ncommand = {json.dumps(there.command)}\n'
        config = product.config(settings(tmp_path, laptop, daemon))
        screen = product.screen("--config", str(config), columns=140, rows=40)
        screen.until_shown(r"alerts: n0 \d+s ok", r"CRIT")
        screen.keys("55")
        screen.until_shown(r"sent keep \d\d:\d\d:\d\d")

        screen.keys("a")
        screen.until_shown("Acknowledge this alert")
        screen.keys("seen\r")
        until(lambda: any(one["acknowledged_by"] for one in there.status()["alerts"]), "the daemon knows of it")
        screen.until_shown(r"ack ")

        there.kill()
        screen.until_shown(r"alerts: sent here", seconds=90)
        (tmp_path / "two").touch()
        until(lambda: rules(laptop), "the laptop tells of the second")
        assert rules(laptop) == ["kill-switch-left run:two"], "and not of what the daemon told"

        there.start()
        screen.until_shown(r"alerts: n0 \d+s ok", seconds=90)
        assert rules(laptop) == ["kill-switch-left run:two"]
        screen.leave()
