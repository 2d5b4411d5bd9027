"""A real sshd whose PAM lets in only who has a job there, with the words of pam_slurm_adopt: a file stands for the job.

PAM reads the rules of a service from one directory of the system: this needs root, and leaves nothing there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

from tests.lab.sshd import Sshd, program

RULES = Path("/etc/pam.d")
DENIED = "Access denied by pam_slurm_adopt: you have no active jobs on this node"


class PamSlurmAdoptSshd(Sshd):
    """`job` is the file that stands for a running job; without it nobody comes in."""

    def __init__(self, directory: Path, options: dict[str, str]) -> None:
        super().__init__(directory, {"UsePAM": "yes", **options})
        self.job = directory / "job"
        self._named = directory / f"sshd-{uuid.uuid4().hex[:8]}"  # PAM's name for a service is its program's

    @classmethod
    @contextlib.contextmanager
    def start(cls, directory: Path, **options: str) -> Iterator[PamSlurmAdoptSshd]:
        if os.getuid() != 0:
            raise RuntimeError("PAM's rules belong to root: run these tests as root, such as in a container")
        directory.mkdir(parents=True, exist_ok=True)
        sshd = cls(directory, options)
        sshd._named.symlink_to(program("sshd"))
        rules = RULES / sshd._named.name
        rules.write_text(f"account required pam_exec.so stdout quiet {sshd._judge()}\nsession required pam_permit.so\n")
        try:
            sshd.run()
            yield sshd
        finally:
            sshd.stop()
            rules.unlink()

    def end_job(self) -> None:
        """What Slurm does at the end of a job: nobody else comes in, and the sessions that it adopted are killed."""
        self.job.unlink()
        for pid in self.sessions():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _judge(self) -> Path:
        judge = self.directory / "judge"
        judge.write_text(f"#!/bin/sh\n[ -e '{self.job}' ] || {{ echo '{DENIED}'; exit 1; }}\n")
        judge.chmod(0o755)
        return judge

    def _program(self) -> str:
        return str(self._named)
