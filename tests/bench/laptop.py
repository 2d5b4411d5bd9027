"""The laptop's side on real sshd: `python -m tests.bench.laptop [NODES]`, 64 nodes with 8 GPUs each, every 2 s.

Every node is a loopback address of one real sshd, its GPUs the NVML stand-in. Beside ours, in the same run and on the
same nodes: nvidb 1.9.2 from PyPI with its own defaults, and bare paramiko that connects and runs `true`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.dashboard import percent
from tests.bench.table import ratio, show
from tests.lab.nvml import Nvml, library
from tests.lab.pip import environment, pip
from tests.lab.sshd import Sshd
from tests.lab.terminal import Cost, Terminal

SETTLE = 30.0
SPAN = 60.0
AT_ONCE = 8
PEER = "nvidb==1.9.2"
PEER_NODES = 64
"""With more nodes the other tool takes the whole machine, so ours runs alone."""

APP = """
import sys
from pathlib import Path
from trainmon.runtime.monitor import Monitor
from trainmon.config import load_settings
from tui.app import Dashboard
settings, _ = load_settings(Path(sys.argv[2]), ())
parts = Monitor(settings, prompts=True, ssh_config=Path(sys.argv[1]))
parts.start()
Dashboard(parts).run()
parts.stop()
"""

CONNECT = """
import sys, threading
from pathlib import Path
from trainmon.runtime.monitor import Monitor
from trainmon.config import load_settings
settings, _ = load_settings(Path(sys.argv[2]), ())
parts = Monitor(settings, ssh_config=Path(sys.argv[1]))
done = threading.Event()
wanted = int(sys.argv[3])
def heard(state):
    if sum(node.gpus_at is not None and len(node.gpus) == 8 for node in state.nodes.values()) == wanted:
        done.set()
parts.start()
parts.subscribe(heard)
assert done.wait(240), "not all nodes answered"
print("done", flush=True)
parts.stop()
"""

BARE = """
import sys
from concurrent.futures import ThreadPoolExecutor
import paramiko
def one(address):
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.AutoAddPolicy())  # it knows no wildcards in known_hosts
    client.connect(address, port=int(sys.argv[1]), username=sys.argv[2], key_filename=sys.argv[3],
                   allow_agent=False, look_for_keys=False, timeout=30, banner_timeout=60, auth_timeout=60)
    _, out, _ = client.exec_command("true")
    assert out.channel.recv_exit_status() == 0
    return client
with ThreadPoolExecutor(int(sys.argv[4])) as pool:
    clients = list(pool.map(one, sys.argv[5:]))
print("done", flush=True)
for client in clients:
    client.close()
"""


def watched(argv: list[str], ready: str, env: dict[str, str] | None = None) -> tuple[Cost, Cost]:
    """Costs of a program at both ends of a span, once it shows what it is ready with."""
    with Terminal(argv, env=env) as terminal:
        terminal.wait_for_text(ready, timeout=240)
        time.sleep(SETTLE)
        before = terminal.cost()
        time.sleep(SPAN)
        after = terminal.cost()
        if "--screens" in sys.argv:
            print(terminal.text())
        return before, after


def timed(script: str, *arguments: str) -> float:
    """Seconds from the start of a process until it says that it is done."""
    started = time.monotonic()
    with subprocess.Popen([sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n", "it did not get there"
        return time.monotonic() - started


def cluster(folder: Path, nodes: int) -> Path:
    """The config: this very Python on the nodes, not what a developer's shell puts before it on the PATH."""
    python = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    config = folder / "trainmon.toml"
    config.write_text(f'[cluster]\nname = "bench"\nnodes = ["n[0-{nodes - 1}]"]\npython = "{python}"\n')
    return config


def peer(folder: Path, sshd: Sshd, nodes: int) -> tuple[list[str], str, dict[str, str]]:
    """nvidb in an environment of its own, configured for the same nodes; what it shows when it is ready."""
    pip("--python", environment(folder / "peer"), "install", PEER)
    home = folder / "peer-home"
    home.mkdir()
    servers = "".join(
        f"  - hostname: {sshd.address(i)}\n    port: {sshd.port}\n    username: {sshd.user}\n    nickname: n{i}\n"
        f"    identityfile: {sshd.key}\n    auth: key\n"
        for i in range(nodes)
    )
    (home / "config.yml").write_text(f"servers:\n{servers}")
    return [str(folder / "peer/bin/nvidb"), "--remote"], "n1", {"NVIDB_HOME": str(home)}


def main() -> None:
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 64
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        nvml = Nvml(folder)
        environment = f"LD_LIBRARY_PATH={library()} TRAINMON_LAB_NVML={nvml.path}"
        with Sshd.start(folder / "sshd", SetEnv=environment) as sshd:
            config, settings = str(sshd.ssh_config(nodes)), str(cluster(folder, nodes))
            addresses = [sshd.address(i) for i in range(nodes)]
            ours, bare = [], []
            for _ in range(3):
                bare.append(timed(BARE, str(sshd.port), sshd.user, str(sshd.key), str(AT_ONCE), *addresses))
                ours.append(timed(CONNECT, config, settings, str(nodes)))
            connected, theirs = sorted(ours)[1], sorted(bare)[1]
            show(
                f"All {nodes} nodes connected and first data there (median of 3, in turn, {AT_ONCE} at once)",
                ("what", "seconds", "ratio", "goal"),
                [
                    ["bare paramiko, true", f"{theirs:.1f}", "1", ""],
                    ["ours, GPUs known", f"{connected:.1f}", ratio(connected, theirs), "<= 2x"],
                ],
            )
            app = [sys.executable, "-c", APP, config, settings]
            here = watched(app, f"{nodes}/{nodes}")
            there = watched(*peer(folder, sshd, nodes)) if nodes <= PEER_NODES else None
            show(
                f"The dashboard on {nodes} nodes x 8 GPUs over real sshd, whole process, {SPAN:.0f} s",
                ("what", "ours", PEER, "goal"),
                [
                    ["CPU % of a core", *(f"{percent(*one):.1f}" if one else "" for one in (here, there)), "<= 6"],
                    [
                        "RSS MiB",
                        *(f"{one[1].rss_mib:.0f}" if one else "" for one in (here, there)),
                        "<= 110" if nodes <= PEER_NODES else "<= 150",
                    ],
                    ["threads", *(f"{one[1].threads}" if one else "" for one in (here, there)), f"<= {nodes + 16}"],
                ],
            )


if __name__ == "__main__":
    main()
