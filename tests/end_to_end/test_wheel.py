"""The wheel, as somebody installs it: built, put into a fresh environment, and used."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.product import QUICK, Product, is_restored
from tests.lab.pip import environment, pip, run
from trainmon import __version__

ROOT = Path(__file__).parents[2]
PACKAGES = ("trainmon", "collectors", "tui")
FILES = ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "trainmon_hooks.py")
NOT_INSTALLED = ("tests/docs.py", "tests/screenshots.py")
"""Tools of those who work on this program."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a wheel and an sdist, built from a copy: nothing that lies about here gets into it."""
    copy, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for name in FILES:
        shutil.copy(ROOT / name, copy)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", built, copy)
    return built


def names_in_wheel(built: Path) -> set[str]:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_has_every_file_of_the_packages_and_nothing_else(built: Path) -> None:
    files = {path.relative_to(ROOT).as_posix() for name in PACKAGES for path in (ROOT / name).rglob("*.*")}
    ours = {name for name in files if "__pycache__" not in name}
    found = {name for name in names_in_wheel(built) if ".dist-info/" not in name}
    assert found == ours | {"trainmon_hooks.py"}


@pytest.mark.parametrize("tool", NOT_INSTALLED)
def test_the_wheel_has_no_tool_of_developers(built: Path, tool: str) -> None:
    assert tool not in names_in_wheel(built)


def test_the_sdist_has_what_a_build_needs(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= {*FILES, "trainmon/cli/main.py", "collectors/probe/fallback.sh", "tui/trainmon.tcss"}
    assert not any(name.startswith("tests") for name in names)


class Installed(Product):
    """The program of another environment."""

    def __init__(self, folder: Path, prefix: Path) -> None:
        super().__init__(folder)
        self._program = str(prefix / "bin" / "trainmon-tui")

    def argv(self, *words: str) -> list[str]:
        return [self._program, *words]


@pytest.mark.slow
def test_a_plain_install_is_small_and_the_command_that_we_print_adds_an_extra(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    python = environment(tmp_path)
    pip("--python", python, "install", "-c", ROOT / ".ci" / "constraints.txt", wheel)
    used = subprocess.run(["du", "-sm", tmp_path], capture_output=True, text=True, timeout=60, check=True).stdout
    assert int(used.split()[0]) <= 175, "MB, compiled"
    code = "from trainmon.lib.extras import *; print(*(install_command(extra) for extra in LIBRARIES), sep='\\n')"
    shown = subprocess.run([python, "-P", "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    for line in shown.splitlines()[:2]:
        run("sh", "-c", line)
    left = subprocess.run([python, "-P", "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    assert left.split()[:2] == ["None", "None"]
    assert left.count("trainmon-tui[") == shown.count("trainmon-tui[") - 2 == 1


@pytest.fixture(scope="module")
def fresh(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel in it; what the wheel depends on is that of the tests."""
    folder = tmp_path_factory.mktemp("fresh")
    (wheel,) = built.glob("*.whl")
    pip("--python", environment(folder), "install", "--no-deps", "--no-index", wheel)
    (packages,) = folder.glob("lib/python*/site-packages")
    (ours,) = Path(sys.prefix).glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{ours}\n")
    return folder


@pytest.fixture
def installed(fresh: Path, tmp_path: Path) -> Iterator[Installed]:
    with contextlib.closing(Installed(tmp_path, fresh)) as made:
        yield made


def test_the_installed_program_says_its_version(installed: Installed, fresh: Path) -> None:
    done = installed.run("--version")
    assert (done.returncode, done.stdout) == (0, f"trainmon-tui {__version__}\n")
    code = "import collectors, trainmon, tui; print(*(package.__file__ for package in (collectors, trainmon, tui)))"
    python = [fresh / "bin" / "python", "-P", "-c", code]
    answer = subprocess.run(python, capture_output=True, text=True, timeout=60, check=True)
    assert all(str(fresh) in place for place in answer.stdout.split())


def test_the_installed_program_shows_its_demo_and_leaves(installed: Installed) -> None:
    screen = installed.screen("--demo", is_installed=True)
    screen.until_shown("DEMO", "1 Runs", "2 GPUs", "q Quit", r"ssh 1[0-6]/16")
    assert screen.leave() < QUICK
    assert is_restored(bytes(screen.screen))


def test_the_installed_program_reads_this_machine(installed: Installed) -> None:
    result = installed.snapshot()
    (node,) = result["nodes"]
    assert node["memory_total_mib"] > 0
