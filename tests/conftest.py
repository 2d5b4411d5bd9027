"""The order of the test files, and what every worker does before its first test."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("random"), derandomize=True, max_examples=40)
settings.load_profile("same")  # a change is judged by the same 40 examples each time; --all looks for 100 new ones

gc.disable()  # until all is collected: a quarter of the time that it takes

WAITING = ("alerts", "chaos", "end_to_end", "slurm", "wandb")
"""Packages of tests that wait for real programs; those of the screens need the processor, and all others are short."""


def pytest_sessionstart(session: pytest.Session) -> None:
    """Import all test files, in each worker from another one on: a clean checkout compiles each only once."""
    if settings.get_current_profile_name() == "same":
        # Else each worker reads the constants of all our modules, and examples change with every one of them.
        providers._get_local_constants = providers.Constants
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup. By this signal, ssh ends its ProxyCommand.
        signal.signal(signal.SIGHUP, lambda *_: None)  # what we start has the default
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if not worker or [Path(name).name for name in session.config.args] != ["tests"]:
        return
    here = Path(__file__).parent
    names = sorted(".".join(path.relative_to(here.parent).with_suffix("").parts) for path in here.rglob("test_*.py"))
    start = len(names) * int(worker[2:]) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    for name in (*names[start:], *names[:start]):
        with contextlib.suppress(Exception):  # its collection reports it
            importlib.import_module(name)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that wait and files that compute take turns; the short ones come last, and fill the gaps at the end."""
    groups: defaultdict[int, list[Path]] = defaultdict(list)
    group_of: dict[Path, int] = {}
    for path in dict.fromkeys(item.path for item in items):
        package = path.relative_to(Path(__file__).parent).parts[0]
        group_of[path] = 0 if package in WAITING else 1 if package == "tui" else 2
        groups[group_of[path]].append(path)
    place = {path: (group == 2, n / len(paths)) for group, paths in groups.items() for n, path in enumerate(paths)}
    items.sort(key=lambda item: place[item.path])


def pytest_collection_finish() -> None:
    """What is there by now stays until the end: the garbage collector never looks at it, and at the rest less often.

    By default it looks after every 700 objects, which is a tenth of the time that the tests of screens take.
    """
    gc.freeze()
    gc.set_threshold(10_000)
    gc.enable()


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that every user may pass to. pytest closes its own ones again whenever a session starts."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o755)
        yield folder
