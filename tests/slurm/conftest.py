"""One Slurm for all tests of this package; each test finds it empty, with all its nodes idle."""

from __future__ import annotations

import contextlib
import functools
import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab.slurm import Slurm
from tests.slurm.polling import Polling
from tests.slurm.product import SlurmProduct
from tests.slurm.training import Training
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import LocalShell

NUMBERS = itertools.count(1)


@contextlib.contextmanager
def open_directory() -> Iterator[Path]:
    """A directory with a short name that other users may read: pytest's own are for us alone."""
    directory = Path(tempfile.mkdtemp(prefix="lab-"))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def one_slurm() -> Iterator[Slurm]:
    with open_directory() as directory, Slurm.start(directory) as slurm:
        yield slurm


@pytest.fixture
def slurm(one_slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    """The one Slurm; commands that a test starts on this machine find it."""
    for name, value in one_slurm.environ.items():
        monkeypatch.setenv(name, value)
    yield one_slurm
    one_slurm.clear()


@pytest.fixture
def watching(slurm: Slurm) -> Iterator[Callable[..., Polling]]:
    """Makes our poller, asking this Slurm on this machine: watching(users=("root", "nobody"))."""
    loop = EventLoop()
    loop.start()
    shell = LocalShell(loop)
    yield functools.partial(Polling, shell)
    shell.close()
    loop.stop()


@pytest.fixture
def watch(watching: Callable[..., Polling]) -> Polling:
    """It watches nobody's jobs but ours."""
    return watching()


@pytest.fixture
def product(tmp_path: Path, slurm: Slurm) -> Iterator[SlurmProduct]:
    """The product as its user has it; its commands find this Slurm."""
    made = SlurmProduct(tmp_path, slurm.environ)
    with contextlib.closing(made):
        yield made


@pytest.fixture
def training(slurm: Slurm) -> Callable[..., Training]:
    """Makes a training with a name of its own: training("--usr1=save", layout="dcp")."""

    def make(*options: str, **how: str) -> Training:
        return Training(slurm, f"run-{next(NUMBERS)}", *options, **how)

    return make
