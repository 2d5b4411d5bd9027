"""Each test of the sh probe runs under dash, busybox and bash, and leaves no process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.collectors.probe.fallback.running import SHELLS, SMI, Fallback


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if not shutil.which(SHELLS[name][0]):
        pytest.fail(f"{SHELLS[name][0]} is needed: apt-get install {SHELLS[name][0]}")
    return name


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Fallback]]:
    running: list[Fallback] = []

    def started(shell: str, *paths: str, story: str | None = None, **env: str) -> Fallback:
        tools = tmp_path / f"tools-{len(running)}"
        tools.mkdir()
        if shell == "busybox":
            for applet in ("awk", "df", "dd", "wc", "date", "sleep", "ls", "renice", "grep", "tr", "uname", "cat"):
                (tools / applet).symlink_to(str(shutil.which("busybox")))
        if story is not None:
            (tools / "nvidia-smi").symlink_to(SMI)
            (tmp_path / "story").write_text(story)
        path = f"{tools}:{os.environ['PATH']}"
        env = {"FAKE_SMI": str(tmp_path / "story"), **env, "PATH": path}
        running.append(Fallback(shell, list(paths), env))
        return running[-1]

    yield started
    for one in running:
        one.finish()
