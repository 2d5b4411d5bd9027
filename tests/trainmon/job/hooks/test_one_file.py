"""The printed file is one file that every Python runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import trainmon_hooks as installed
from tests.collectors.probe.interpreters import found
from trainmon import job

LOOP = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import trainmon_hooks
hooks = trainmon_hooks.Hooks.from_env(print_every=1)
assert not hooks.stop_at_start()
os.kill(os.getpid(), signal.SIGUSR1)
asked = [hooks.step(1, 2.5)]
hooks.saved(1)
os.kill(os.getpid(), signal.SIGTERM)
asked += [hooks.step(2, 2.0, lr=1e-3), hooks.step(3)]
hooks.done(3)
print(asked, "torch" in sys.modules, "transformers" in sys.modules)
"""


@pytest.mark.parametrize("version", sorted(set(found()) - {"3.6", "3.7"}, key=lambda one: int(one.split(".")[1])))
def test_every_python_runs_it(version: str, tmp_path: Path) -> None:
    (tmp_path / "trainmon_hooks.py").write_text(job.hooks_module())
    argv = [found()[version], "-W", "error", "-I", "-S", "-c", LOOP, str(tmp_path)]
    environ = {"TRAINMON_SAVE": str(tmp_path / "save")}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == (
        "step: 1 | loss: 2.5\nstep: 2 | loss: 2 | lr: 0.001\nstep: 3\n['save', 'stop', 'stop'] False False\n"
    ), done.stderr
    known = json.loads((tmp_path / "save.status").read_text())
    assert known["ended"]["why"] == "stop: SIGTERM on rank 0"


def test_the_printed_file_is_what_is_installed_and_short() -> None:
    printed = subprocess.check_output([sys.executable, "-m", "trainmon", "hooks"], text=True, timeout=120)
    assert printed == job.hooks_module()
    names: dict[str, Any] = {"__name__": "printed"}
    exec(compile(printed, "trainmon_hooks.py", "exec"), names)
    assert set(installed.__all__) <= set(names)
    assert all(len(line) <= 120 for line in printed.splitlines())
