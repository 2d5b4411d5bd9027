"""What is sent to a node: small, unquotable nowhere, and NVIDIA's own text."""

from __future__ import annotations

import ast
import importlib.util
import io
import os
import shlex
import subprocess
import sys
import time
import types
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from collectors.probe import bundle
from tests.collectors.probe import interpreters
from tests.collectors.probe.files.wandb_files import CAPTURED
from tests.lab.nvml import Nvml
from tests.lab.probe import RunningProbe
from trainmon.model import (
    DECODER,
    Bye,
    DiskSamples,
    FileContent,
    GpuSamples,
    Hello,
    HostSample,
    LogSpec,
    Spec,
    WandbDirectory,
    WandbRows,
)

PYTHON = b"#probe \n"
SHELL = b"#probe sh\n"
TEXTS = [path.read_text() for path in bundle.sent().values()]


def full_pynvml() -> str:
    spec = importlib.util.find_spec("pynvml")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text()


def test_any_login_shell_passes_the_command_on() -> None:
    line = shlex.join(bundle.command())
    assert not set(line) & set("\n!`\x00")
    assert "'\"'\"'" not in line, "a quoted quote: csh and fish read it in their own ways"
    assert len(line) < 2000


def test_the_code_is_one_line_of_plain_ascii_and_the_script_ends_in_its_sign() -> None:
    length, _, code = bundle.payload(PYTHON).partition(b"\n")
    assert set(code[:-1]) <= set(b" ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
    assert code.endswith(b"\n")
    assert int(length) == len(code)
    script = bundle.payload(SHELL)
    assert script.endswith(b"\n#END\n")
    assert script.count(b"#END") == 1


def test_only_what_explains_the_code_is_left_out() -> None:
    class Bare(ast.NodeTransformer):
        def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
            return None if isinstance(node.value, ast.Constant) else node

        def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
            node.returns = None
            return self.generic_visit(node)

        def visit_arg(self, node: ast.arg) -> ast.arg:
            node.annotation = None
            return node

    def shape(text: str) -> tuple[str, list[int]]:
        tree = Bare().visit(ast.parse(text))
        return ast.dump(tree), [one.lineno for one in ast.walk(tree) if isinstance(one, ast.stmt)]

    for path in bundle.sent().values():
        text = path.read_text()
        assert shape(bundle.without_docs(text)) == shape(text), path


def test_it_is_small_and_made_once() -> None:
    for greeting, most in ((PYTHON, 64_000), (SHELL, 20_000)):
        assert len(bundle.payload(greeting)) < most
        assert bundle.payload(greeting) is bundle.payload(greeting)


def test_a_spec_is_one_line_whatever_is_in_it() -> None:
    line = bundle.spec_line(Spec(disks=("/a\nb",), logs=(LogSpec("ü", "x*'\"\\"),)))
    assert line.count(b"\n") == 1
    assert line.startswith(b"{")
    assert line.endswith(b"}\n")


def test_the_modules_for_files_of_metrics_come_only_with_a_spec_that_needs_them() -> None:
    plain, wanted = bundle.spec_line(Spec()), bundle.spec_line(Spec(wandb=(WandbDirectory("llm", "/fsx/wandb"),)))
    assert b"modules" not in plain
    assert len(plain) + 1_000 < len(wanted) < 13_000
    assert wanted.count(b"\n") == 1


def test_the_pruned_pynvml_is_nvidias_own_text_line_by_line() -> None:
    pruned, full = bundle.pruned_pynvml(TEXTS), full_pynvml()
    assert "Copyright (c) 2011-2025, NVIDIA Corporation" in pruned or "NVIDIA Corporation" in pruned[:400]
    ours = [line for line in pruned.splitlines() if line.startswith("from collectors.probe.stdlib import ")]
    rest = iter(full.splitlines())
    for line in pruned.splitlines():
        assert line in ours or line in rest, f"not in NVIDIA's file, or not in its order: {line}"
    assert len(ours) == 3
    assert len(pruned) < len(full) / 8


def test_the_pruned_pynvml_answers_as_the_full_one_does(tmp_path: Path) -> None:
    """Every function that the probe calls, on every GPU of the stand-in, in both modules, errors included."""
    pruned = tmp_path / "pruned.py"
    pruned.write_text(bundle.pruned_pynvml(TEXTS))
    script = (
        "import sys, importlib.util\n"
        "spec = importlib.util.spec_from_file_location('pynvml', sys.argv[1])\n"
        "n = importlib.util.module_from_spec(spec); sys.modules['pynvml'] = n; spec.loader.exec_module(n)\n"
        "def told(function, *arguments):\n"
        "    try:\n"
        "        answer = function(*arguments)\n"
        "        return [str(one) for one in answer] if isinstance(answer, (list, tuple)) else str(answer)\n"
        "    except n.NVMLError as error:\n"
        "        return type(error).__name__, error.value, str(error)\n"
        "print(told(n.nvmlDeviceGetCount)); n.nvmlInit(); print(told(n.nvmlSystemGetDriverVersion))\n"
        "for i in range(9):\n"
        "    print(told(n.nvmlDeviceGetHandleByIndex, i)[:1])\n"
        "for i in range(8):\n"
        "    h = n.nvmlDeviceGetHandleByIndex(i)\n"
        "    for name in sys.argv[2:]:\n"
        "        print(i, name, told(getattr(n, name), h))\n"
        "    print(told(n.nvmlDeviceGetTemperature, h, 0), told(n.nvmlDeviceGetClockInfo, h, 1))\n"
        "    print(told(n.nvmlDeviceGetMemoryInfo, h, n.nvmlMemory_v2), told(n.nvmlDeviceGetTotalEccErrors, h, 0, 0))\n"
        "    value = n.nvmlDeviceGetFieldValues(h, [n.NVML_FI_DEV_MEMORY_TEMP])[0]\n"
        "    print(value.nvmlReturn, value.value.uiVal)\n"
        "    print(sorted((p.pid, p.usedGpuMemory) for p in n.nvmlDeviceGetComputeRunningProcesses_v3(h)))\n"
    )
    kinds = ["Name", "UUID", "PciInfo", "UtilizationRates", "PowerUsage", "EnforcedPowerLimit", "MarginTemperature"]
    kinds += ["CurrentClocksEventReasons", "CurrentClocksThrottleReasons", "RemappedRows", "MigMode"]
    plain = [f"nvmlDeviceGet{kind}" for kind in kinds]
    nvml = Nvml(tmp_path).error(1, "nvmlDeviceGetName", 15).error(2, "*", 999).set(3, mig=1).process(4, 77, 500)
    nvml.error(2, "nvmlDeviceGetHandleByIndex_v2", 0).error(2, "nvmlDeviceGetFieldValues", 0)
    nvml.error(2, "nvmlDeviceGetComputeRunningProcesses_v3", 0)
    environment = nvml.environment() | {"PYTHONPATH": str(bundle.FOLDER.parent.parent)}

    def answers(module: Path) -> str:
        argv = [sys.executable, "-c", script, str(module), *plain]
        return subprocess.run(
            argv,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
            cwd=bundle.FOLDER.parent.parent,
        ).stdout

    origin = importlib.util.find_spec("pynvml")
    assert origin is not None
    result = answers(Path(origin.origin or ""))
    assert result.count("\n") > 100
    assert "NVMLError_GpuIsLost" in result
    assert answers(pruned) == result


def test_the_loader_reads_not_one_byte_of_the_specs() -> None:
    """The specs may come in the same packet as the code."""
    pipe = io.BytesIO(bundle.payload(PYTHON) + b"{}\n")
    reader = io.BufferedReader(pipe, 1)
    code = reader.read(int(reader.readline()))
    assert bundle.payload(PYTHON).endswith(code)
    assert pipe.read() == b"{}\n"


def test_making_it_costs_the_laptop_little() -> None:
    spent = []
    for _ in range(3):
        bundle._code.cache_clear()
        begun = time.process_time()
        bundle.payload(PYTHON)
        spent.append(time.process_time() - begun)
    assert min(spent) < 0.5, "0.08 s, and more where other programs use the same caches"


@pytest.mark.parametrize("version", interpreters.found())
def test_it_runs_under_every_python_of_a_node(version: str, tmp_path: Path) -> None:
    nvml = Nvml(tmp_path).set(5, temperature=66).process(5, 1, 1000).xid(5, 79)
    python = interpreters.found()[version]
    log = tmp_path / "x.log"
    log.write_text("step 1\nstep 2\n")
    spec: dict[str, Any] = {
        "disks": [str(tmp_path), "/é"],
        "switches": [str(tmp_path / "kill")],
        "logs": [{"id": "x", "pattern": str(log)}],
        "files": [{"id": "data_manifest 88", "pattern": str(log)}],
        "wandb": [{"id": "llm", "directory": str(CAPTURED.parent), "charts": ["val/loss"]}],
    }
    environment = {**nvml.environment(), "LANG": "C", "LC_ALL": "C"}
    with RunningProbe(environment, python=python, **spec) as running:
        hello = running.wait(Hello)
        assert hello.python is not None
        assert hello.python.startswith(version + ".")
        assert (hello.probe, hello.driver) == ("nvml", "580.126.09")
        assert running.wait(GpuSamples, lambda line: len(line.g) == 8).g[5].temperature_c == 66
        nvml.hang(1, "nvmlDeviceGetUtilizationRates")
        running.ask(patience=0.5, **spec)
        rows = running.wait_anew(GpuSamples, lambda line: len(line.g) == 8 and line.g[1].error).g
        assert rows[5].temperature_c == 66
        content = running.wait(FileContent)
        assert (content.text, content.sha256) == ("step 1\nstep 2\n", sha256(log.read_bytes()).hexdigest())
        assert running.wait(WandbRows, lambda line: line.rows == 120).keys == ("val/loss",)
        kinds = {type(reading).__name__ for reading in running.readings}
        assert kinds >= {"GpuFactsAll", "HostSample", "DiskSamples", "LogChunk", "SwitchSamples"}
        assert running.process.stdin is not None
        running.process.stdin.close()
        assert running.ended() == 0
        assert running.complaints() == b""
        assert isinstance(running.readings[-1], Bye)


def test_enough_pythons_are_here_to_mean_something() -> None:
    assert len(interpreters.found()) >= 1
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in interpreters.found()


def test_nothing_in_it_needs_more_than_python_3_6() -> None:
    sent = [str(bundle.FOLDER / "boot.py"), *map(str, bundle.sent().values())]
    vermin = Path(sys.executable).with_name("vermin")
    done = subprocess.run(
        [str(vermin), "-t=3.6-", "--no-tips", "--violations", *sent],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_what_is_sent_imports_the_standard_library_and_itself_alone() -> None:
    allowed = {"collectors", "pynvml", *sys.stdlib_module_names}
    for text in TEXTS:
        if "from trainmon" in text:
            assert "def payload(" in text, "only the bundle, which stays here, knows trainmon"
            continue
        for line in text.splitlines():
            words = line.split()
            if words[:1] in (["import"], ["from"]) and len(words) > 1:
                assert words[1].split(".")[0].rstrip(",") in allowed, line


def test_without_a_fitting_python_the_shell_script_runs() -> None:
    """Whatever the script is, the loader's shell hands it the specs, and not one line before them."""
    script = b'while IFS= read -r line; do printf "got:%s\\n" "$line"; done\n'
    done = subprocess.run(
        bundle.command("no-such-python"),
        input=script + b"\n#END\n" + b'{"period":2}\n\n',
        capture_output=True,
        timeout=120,
        check=False,
        start_new_session=True,
    )
    assert done.stdout == SHELL + b'got:{"period":2}\ngot:\n'
    assert done.stderr == b""


def test_the_fallback_script_is_given_the_specs_period_and_disks() -> None:
    prelude = bundle.FALLBACK[0].read_bytes()
    spec = bundle.spec_line(Spec(period=3.0, disks=("/a b", "/it's", '/q"\\x', "/$(id)"), switches=("/s",)))
    script = prelude + b'printf "[%s]" "$@"; cat\n'
    done = subprocess.run(
        bundle.command("no-such-python"), input=script + b"#END\n\n" + spec + b"\n", capture_output=True,
        timeout=120, check=False, start_new_session=True,
    )  # fmt: skip
    assert done.stdout.removeprefix(SHELL).decode() == """[3.0][/a b][/it's][/q"\\x][/$(id)]\n"""
    assert done.stderr == b""


def test_a_node_without_python_gives_its_main_numbers() -> None:
    with RunningProbe(dict(os.environ), python="no-such-python", disks=["/tmp"], period=1) as running:
        assert running.wait(Hello).probe == "sh"
        assert running.wait(HostSample).memory_total_mib
        assert running.wait(DiskSamples).d[0].path == "/tmp"


def test_the_light_imports_are_what_pynvml_needs_of_the_real_ones() -> None:
    import functools  # noqa: F401
    import string

    from collectors.probe import stdlib as light

    for text in ("GPU_IS_LOST", "UNKNOWN", "a__b"):
        assert light.string.capwords(text, "_") == string.capwords(text, "_")
    lock = light.threading.Lock()
    assert lock.acquire(blocking=False)
    lock.release()
    assert isinstance(light.wraps(test_it_is_small_and_made_once)(str), type)
    assert isinstance(light, types.ModuleType)


def test_the_last_line_can_be_read() -> None:
    assert DECODER.decode(b'{"k":"bye","v":1,"t":1.0,"why":"x"}') == Bye(v=1, t=1.0, why="x")
