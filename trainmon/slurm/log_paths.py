"""Where a job writes: sbatch's file name pattern, expanded where scontrol leaves it as it is. Pure."""

from __future__ import annotations

import posixpath
import re

from trainmon.model import Job

PATTERN = re.compile(r"%(?P<width>\d*)(?P<letter>[AabJjNnstux%])")
NO_ELEMENT = "4294967294"
"""What Slurm itself writes for %a where the job is no array, or not one element of it."""


def expanded(path: str, job: Job) -> str:
    """The path of a job's output, as the node writes it (sbatch(1), FILENAME PATTERN).

    scontrol expands %A %a %j %u and %x, with a width (`%4j`) only from 24.05, and never %N %n %J %s %t %b."""
    element = job.tasks if job.tasks is not None and job.tasks.isdigit() else None
    values = {
        "A": str(job.array or job.number),
        "a": element or NO_ELEMENT,
        "b": str(int(element) % 10) if element else None,
        "j": str(job.number),
        "J": str(job.number),
        "N": job.nodes[0].partition(".")[0] if job.nodes else None,
        "n": "0",
        "s": "batch",
        "t": "0",
        "u": job.user or None,
        "x": job.name or None,
        "%": "%",
    }

    def value(found: re.Match[str]) -> str:
        known = values[found["letter"]]
        return found[0] if known is None else known.zfill(min(int(found["width"] or 0), 10))

    path = PATTERN.sub(value, path)
    if not path.startswith("/") and job.workdir is not None:
        path = posixpath.join(job.workdir, path)
    return path
