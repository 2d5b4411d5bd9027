"""Where a job writes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from trainmon.model import Job
from trainmon.slurm.parse import expanded_path

ELEMENT = Job(
    cluster="prod", id="88_13", number=101, array=88, tasks="13", name="video", user="ana", workdir="/fsx/run",
    nodes=("gpu-007.example.org", "gpu-008"),
)  # fmt: skip
SINGLE = Job(cluster="prod", id="90", number=90, name="a b", user="ana")


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("/l/%A_%a.out", "/l/88_13.out"),
        ("/l/%j-%x-%u.out", "/l/101-video-ana.out"),
        ("/l/%8j_%4a.out", "/l/00000101_0013.out"),
        ("/l/%N/%n/%t-%s-%J-%b", "/l/gpu-007/0/0-batch-101-3"),
        ("/l/100%%/%j", "/l/100%/101"),
        ("/l/%q/%", "/l/%q/%"),
        ("logs/%j.out", "/fsx/run/logs/101.out"),
    ],
)
def test_a_pattern_is_written_out(pattern: str, path: str) -> None:
    assert expanded_path(pattern, ELEMENT) == path


def test_a_job_that_is_no_array_writes_what_slurm_writes_for_it() -> None:
    assert expanded_path("/l/%A_%a.out", SINGLE) == "/l/90_4294967294.out"


def test_what_is_not_known_yet_stays_a_pattern() -> None:
    assert expanded_path("/l/%N-%j", SINGLE) == "/l/%N-90"
    assert expanded_path("/l/%b", replace(ELEMENT, tasks="2-9%1")) == "/l/%b"
