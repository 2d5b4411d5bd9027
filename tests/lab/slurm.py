"""A real Slurm on this machine: one controller and as many nodes as a test wants, everything in one directory.

Nodes are called gpu-1, gpu-2, …; jobs of root are "ours", those of `other` are another person's.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.lab import slurm_config
from tests.lab.daemons import DEADLINE, Daemon, end_marked, program, until
from tests.lab.slurm_accounting import Accounting

OTHER = "nobody"
"""Another person, who exists on every machine."""

NO_DATABASE = "we have no TRES from it"
"""Of the last words of a controller that slurmdbd did not answer."""

OVER = frozenset({"CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"})


class Slurm:
    """A running Slurm. `environ` is what squeue and the others need to find it."""

    def __init__(self, directory: Path, *, nodes: int, gpus: int, min_job_age: int, accounting: bool) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        for folder in ("munge", "state", "spool", "log"):
            (directory / folder).mkdir(exist_ok=True)
        # The other person's commands read the configuration and speak to munge.
        directory.chmod(0o755)
        self.directory = directory
        self.accounting = Accounting(directory) if accounting else None
        self.config = slurm_config.write_slurm(
            directory, nodes=nodes, gpus=gpus, min_job_age=min_job_age,
            dbd_port=self.accounting.port if self.accounting else None,
        )  # fmt: skip
        self.environ = {"SLURM_CONF": str(self.config)}
        self.nodes = tuple(f"gpu-{number}" for number in range(1, nodes + 1))
        self._gpus = gpus
        self._munged = self._daemon("munged", "munge", *self._munge_options())
        self._controller = self._daemon("slurmctld", "slurmctld", "-D")
        self._slurmds = {node: self._daemon("slurmd", "slurmd", "-D", "-N", node, log=node) for node in self.nodes}

    @classmethod
    @contextlib.contextmanager
    def start(
        cls, directory: Path, *, nodes: int = 4, gpus: int = 8, accounting: bool = False, min_job_age: int = 300
    ) -> Iterator[Slurm]:
        """Start one with all its nodes idle; its directory must be short (a socket lies in it) and not be 0700."""
        slurm = cls(directory, nodes=nodes, gpus=gpus, min_job_age=min_job_age, accounting=accounting)
        try:
            slurm._run()
            yield slurm
        finally:
            slurm.stop()

    def stop(self) -> None:
        """End it, and every process of its jobs."""
        for slurmd in self._slurmds.values():
            slurmd.kill()
        self._controller.kill()
        end_marked(f"SLURM_CONF={self.config}")
        if self.accounting is not None:
            self.accounting.stop()
        self._munged.stop()

    # ---- commands ---------------------------------------------------------------------------------------------------

    def run(
        self, *argv: str, user: str | None = None, env: Mapping[str, str] | None = None, timeout: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """A command of Slurm as a person would run it, `user` or ourselves; its failure is an answer like any other."""
        env = {"PATH": os.environ["PATH"], "HOME": "/", "LC_ALL": "C", "TZ": "UTC", **self.environ, **(env or {})}
        return subprocess.run(
            argv, env=env, user=user, group="nogroup" if user == OTHER else None, cwd=self.directory,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip

    def ask(self, *argv: str, user: str | None = None, env: Mapping[str, str] | None = None) -> str:
        """What a command prints; its failure fails the test."""
        done = self.run(*argv, user=user, env=env)
        assert done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout

    def submit(self, script: str | Path, *options: str, user: str | None = None) -> str:
        """Submit a script, a path or its text; returns the job's id. Ours writes log/JOBID.log unless options say."""
        path = script if isinstance(script, Path) else self._written(script)
        log = str(self.directory / "log" / "%j.log") if user is None else "/dev/null"
        named = [] if any(option.startswith(("-o", "--output")) for option in options) else ["-o", log]
        return self.ask("sbatch", "--parsable", *named, *options, str(path), user=user).strip()

    def scontrol(self, *words: str, user: str | None = None) -> str:
        return self.ask("scontrol", *words, user=user)

    def squeue(self, *words: str, user: str | None = None) -> str:
        return self.ask("squeue", *words, user=user)

    def start_again(self, job_id: str) -> None:
        """Start a requeued job soon: Slurm would keep it back for two minutes. Not at once: within the second in which
        its last start was killed, slurmd answers "already killed, do not launch batch job", and the job fails."""
        self.scontrol("update", f"JobId={job_id}", "StartTime=now+2")

    # ---- what is so -------------------------------------------------------------------------------------------------

    def job(self, job_id: str) -> dict[str, str]:
        """One job as `scontrol show job` has it: JobState, Restarts, Reason …"""
        words = self.scontrol("show", "job", "-o", job_id).split()
        return dict(word.partition("=")[::2] for word in words if "=" in word)

    def state(self, job_id: str) -> str:
        return self.squeue("-h", "-j", job_id, "--states=all", "-o", "%T").partition("\n")[0]

    def node(self, name: str) -> str:
        """A node's state as sinfo has it."""
        return self.ask("sinfo", "-h", "-N", "-n", name, "-o", "%T").strip()

    def log(self, job_id: str) -> Path:
        return self.directory / "log" / f"{job_id}.log"

    def wait_for(self, condition: Callable[[], object], within: float = DEADLINE, what: str = "a condition") -> None:
        try:
            until(condition, what, within)
        except AssertionError as error:
            error.add_note(self.run("squeue", "--states=all").stdout)
            raise

    def wait_for_state(self, job_id: str, *states: str, within: float = DEADLINE) -> None:
        self.wait_for(lambda: self.state(job_id) in states, within, f"job {job_id} is {' or '.join(states)}")

    # ---- what happens to it -----------------------------------------------------------------------------------------

    def stop_controller(self) -> None:
        self._controller.stop()

    def start_controller(self, *, forgetting: bool = False) -> None:
        """Start it again, with its state or without any. The nodes are, too: they report at once then, and not in 4 s;
        their jobs do not notice."""
        options = ["-c"] if forgetting else []
        self._controller.start(*options)
        self._until_up(*options)
        for slurmd in self._slurmds.values():
            slurmd.stop()
            slurmd.start()

    def freeze_controller(self) -> None:
        self._controller.freeze()

    def thaw_controller(self) -> None:
        self._controller.thaw()
        self._until_up()

    def stop_munge(self) -> None:
        self._munged.stop()

    def start_munge(self) -> None:
        self._munged.start()
        self._munged.until((self.directory / "munge" / "socket").exists, "munge has a socket")

    def drain(self, node: str, reason: str) -> None:
        self.scontrol("update", f"nodename={node}", "state=drain", f"reason={reason}")

    def resume(self, node: str) -> None:
        self.scontrol("update", f"nodename={node}", "state=resume")

    def count_gpus(self, node: str, gpus: int) -> None:
        """The node finds this many GPUs from now on; fewer than it should have drain it."""
        slurm_config.write_gres(self.directory, {**dict.fromkeys(self.nodes, self._gpus), node: gpus})
        self._slurmds[node].stop()
        self._slurmds[node].start()

    def lose(self, node: str) -> None:
        """The node is gone, and its jobs with it: the controller is told, as it would find out minutes later."""
        self.kill_slurmd(node)
        self.scontrol("update", f"nodename={node}", "state=down", "reason=Not responding")

    def kill_slurmd(self, node: str) -> None:
        """The node starts nothing, and the controller does not know it yet."""
        self._slurmds[node].kill()

    def find(self, node: str) -> None:
        """The lost node is back."""
        self._slurmds[node].start()

    def clear(self) -> None:
        """Cancel every job, resume every node, and wait until all are idle."""
        self.run("scancel", "--quiet", "--state=PENDING")
        self.run("scancel", "--quiet", "--full", "--signal=KILL", "--user=root")
        for user in ("root", OTHER):
            self.run("scancel", "--quiet", f"--user={user}")
        self.wait_for(lambda: not self.squeue("-h"), what="no jobs any more")
        for node in self.nodes:
            if self.node(node) != "idle":
                self.run("scontrol", "update", f"nodename={node}", "state=resume")
        self._until_idle()

    # ---- its inside -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        key = self.directory / "munge" / "key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        self.start_munge()
        if self.accounting is not None:
            self.accounting.start(self.environ)
        self._controller.start()
        for slurmd in self._slurmds.values():
            slurmd.start()
        self._until_up()
        self._until_idle()

    def _until_up(self, *options: str) -> None:
        """Wait until the controller answers. A new one ends if slurmdbd does not answer it, which a busy machine may
        cause: it is started again."""

        def answers() -> bool:
            if not self._controller.is_running:
                words = self._controller.log.read_text(errors="replace")[-2000:]
                assert NO_DATABASE in words, f"slurmctld ended: {words}"
                self._controller.stop()
                self._controller.start(*options)
            return self._answers()

        until(answers, "the controller answers")

    def _answers(self) -> bool:
        return "is UP" in self.run("scontrol", "ping").stdout

    def _until_idle(self) -> None:
        wanted = {f"{node} idle" for node in self.nodes}
        self._controller.until(lambda: self._node_states() == wanted, "all nodes are idle")

    def _node_states(self) -> set[str]:
        return set(self.run("sinfo", "-h", "-N", "-o", "%N %T").stdout.splitlines())

    def _daemon(self, name: str, package: str, *options: str, log: str = "") -> Daemon:
        env = {"PATH": os.environ["PATH"], "HOME": "/", "LC_ALL": "C.UTF-8", "TZ": "UTC", **self.environ}
        place = self.directory / "log" / f"{name}{'-' * bool(log)}{log}.log"
        return Daemon(name, [program(name, package), *options], place, env)

    def _munge_options(self) -> list[str]:
        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        return ["--foreground", *(f"--{option}={self.directory}/munge/{name}" for option, name in files.items())]

    def _written(self, text: str) -> Path:
        scripts = self.directory / "scripts"
        scripts.mkdir(exist_ok=True)
        path = scripts / f"script-{len(list(scripts.iterdir()))}.sh"
        path.write_text(text if text.startswith("#!") else f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)
        return path
