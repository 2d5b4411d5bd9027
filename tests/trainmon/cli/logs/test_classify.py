"""trainmon-tui classify: why the attempts ended that wrote these logs."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from trainmon.cli.logs.classify import COUNTED, HEAD, TAIL
from trainmon.cli.main import run

STEP = "step 1/9 | loss: 2.5 | lr 1e-4 | tokens/s 17\n"
LOST = "OSError: [Errno 5] Input/output error: '/mnt/nfs/step.pt'\n"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"


def answers(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, list[dict[str, object]], str]:
    code = run(["classify", *map(str, argv), "--json"])
    printed = capsys.readouterr()
    return code, [json.loads(line) for line in printed.out.splitlines()], printed.err


def test_it_says_the_cause_where_it_stands_and_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "llm.err"
    log.write_text(STEP * 3 + OOM)
    assert run(["classify", str(log)]) == 0
    assert capsys.readouterr().out == (
        f"{log}: cuda-oom\n"
        "  A GPU ran out of memory.\n"
        "  line 4: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
        "  Use a smaller batch, more activation checkpointing, or more sharding. The same settings fail again.\n"
        "  Retry: a retry helps only after a change.\n"
    )


def test_each_file_has_one_object_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").write_text(OOM)
    (tmp_path / "b").write_text("")
    (tmp_path / "c").write_text("KeyboardInterrupt\n")
    code, found, _ = answers(capsys, *(tmp_path / name for name in "abc"))
    assert code == 1  # of b, nobody can say why it ended
    assert [one["cause"] for one in found] == ["cuda-oom", "unknown", "cancelled-by-user"]
    assert [Path(str(one["file"])).name for one in found] == ["a", "b", "c"]
    assert set(found[0]) == {
        "file", "cause", "family", "retry", "confidence", "evidence", "advice", "fingerprint", "exception", "rank",
    }  # fmt: skip
    assert found[0]["evidence"] == [{"line": 1, "text": OOM.strip(), "rank": None}]


def test_the_logs_of_all_ranks_of_one_attempt_have_one_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    day = "2026-11-22"
    (tmp_path / "0.log").write_text(
        f"{day} 10:15:00,1 - root - ERROR - {LOST}{day} 10:15:01,0 - root - INFO - waiting\n"
    )
    (tmp_path / "3.log").write_text(f"{day} 10:04:00,1 - root - INFO - step 7\n{day} 10:05:00,1 - root - ERROR - {OOM}")
    both = [str(tmp_path / name) for name in ("0.log", "3.log")]
    code, found, _ = answers(capsys, *both, tmp_path / "none.log", "--together")
    assert code == 3
    assert [(one["file"], one["cause"]) for one in found] == [(f"{' '.join(both)} {tmp_path}/none.log", "cuda-oom")]
    shown = found[0]["evidence"][0]  # type: ignore[index]
    assert shown == {"line": 2, "text": OOM.strip(), "rank": None, "file": both[1]}
    assert run(["classify", "--together", *both]) == 0
    assert f"\n  {both[1]}, line 2: {OOM}" in capsys.readouterr().out


def test_the_exit_code_and_the_schedulers_state_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log").write_text(STEP)
    _, found, _ = answers(capsys, tmp_path / "log", "--exit-code", -11)
    assert found[0]["cause"] == "segfault"
    _, found, _ = answers(capsys, tmp_path / "log", "--scheduler-state", "PREEMPTED")
    assert (found[0]["cause"], found[0]["evidence"]) == (
        "preempted",
        [{"line": None, "text": "Slurm: PREEMPTED", "rank": None}],
    )


def test_a_file_that_cannot_be_read_does_not_hide_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log").write_text(OOM)
    code, found, error = answers(capsys, tmp_path / "none", tmp_path, tmp_path / "log")
    assert (code, [one["cause"] for one in found]) == (3, ["cuda-oom"])
    assert error == (
        f"trainmon-tui: {tmp_path}/none: No such file or directory\ntrainmon-tui: {tmp_path}: Is a directory\n"
    )


@pytest.mark.parametrize("skipped", [0, 1, 5_000, 60_000])
def test_the_last_lines_of_a_long_log_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, skipped: int
) -> None:
    lines = (HEAD + TAIL) // len(STEP) + skipped
    log = tmp_path / "log"
    log.write_text(STEP * lines + OOM + "bye\n")
    _, found, _ = answers(capsys, log)
    assert found[0]["evidence"] == [{"line": lines + 1, "text": OOM.strip(), "rank": None}]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(log.read_bytes())))
    _, found, _ = answers(capsys, "-")
    assert (found[0]["file"], found[0]["evidence"]) == ("-", [{"line": lines + 1, "text": OOM.strip(), "rank": None}])


def test_the_last_lines_of_a_huge_log_are_numbered_from_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.truncate(COUNTED * 32)  # 1 GB, sparse
        file.seek(0, 2)
        file.write(b"\n" + STEP.encode() + OOM.encode() + b"bye\n")
    _, found, _ = answers(capsys, log)
    assert found[0]["evidence"] == [{"line": -2, "text": OOM.strip(), "rank": None}]


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"x" * 1_000_000 + b" " + OOM.encode(), "cuda-oom"),
        (b"\xff\xfe\x00\x9f" + OOM.encode(), "cuda-oom"),
        (b"\x00" * 400_000 + OOM.encode(), "cuda-oom"),
        (b"", "unknown"),
    ],
)
def test_odd_files_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes, cause: str) -> None:
    (tmp_path / "log").write_bytes(data)
    assert answers(capsys, tmp_path / "log")[1][0]["cause"] == cause
