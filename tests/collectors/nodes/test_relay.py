"""The relay in each task of a step, as a real shell runs it: each node gets its own lines."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from collectors.nodes import relay
from collectors.nodes.relay import ALL, addressed
from collectors.probe import bundle


@pytest.fixture
def task() -> Iterator[subprocess.Popen[bytes]]:
    """The task of the node gpu-2, whose command repeats its input."""
    argv = relay.command(["sh", "-c", "cat; exit 3"])
    env = {"PATH": os.environ["PATH"], "SLURMD_NODENAME": "gpu-2"}
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env, start_new_session=True) as started:
        yield started
        if started.poll() is None:
            started.kill()


def test_a_node_gets_its_own_lines_and_those_for_all(task: subprocess.Popen[bytes]) -> None:
    lines = b"gpu-1 a\ngpu-2 b  c \\n\ngpu-1,gpu-2,gpu-3 d\n* e\ngpu-22,1gpu-2 f\ngpu-2 \n"
    output, _ = task.communicate(lines, timeout=60)
    assert output == b"#node gpu-2\nb  c \\n\nd\ne\n\n#ended 3\n"
    assert task.returncode == 0


def test_the_end_of_one_node_leaves_the_others(task: subprocess.Popen[bytes]) -> None:
    output, _ = task.communicate(b"-gpu-1\n* a\n-gpu-2\n* b\n", timeout=60)
    assert output == b"#node gpu-2\na\n#ended 3\n"


def test_signals_to_the_job_do_not_end_it(task: subprocess.Popen[bytes]) -> None:
    assert task.stdin is not None
    assert task.stdout is not None
    assert task.stdout.readline() == b"#node gpu-2\n"
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
        os.killpg(task.pid, number)
    output, _ = task.communicate(b"* still here\n", timeout=60)
    assert output == b"still here\n#ended 3\n"


def test_it_ends_with_0_when_its_job_does(task: subprocess.Popen[bytes]) -> None:
    """Slurm keeps the highest exit status of all steps: ours must not be that of the job."""
    assert task.stdout is not None
    assert task.stdout.readline() == b"#node gpu-2\n"
    os.killpg(task.pid, signal.SIGTERM)
    output, _ = task.communicate(timeout=60)
    assert b"#ended %d\n" % relay.BY_SIGTERM in output
    assert task.returncode == 0


def test_every_login_shell_passes_its_command_on() -> None:
    assert not set(" ".join(relay.command(bundle.command()))) & set("\n'!")


def test_the_code_is_sent_once_to_all_nodes_that_greet_together() -> None:
    code = b"x" * 50_000
    lines = {f"gpu-{number}": [b"50000", code, b"{%d}" % number] for number in range(64)}
    sent = addressed(lines, 64)
    assert sent.count(code) == 1
    assert sent.startswith(f"{ALL} 50000\n{ALL} x".encode())
    assert sent.endswith(b"gpu-63 {63}\n")


def test_nodes_of_another_interpreter_get_their_own_code() -> None:
    lines = {"gpu-1": [b"a", b"s"], "gpu-2": [b"b"], "gpu-3": [b"a", b"s"]}
    assert addressed(lines, 3) == b"gpu-1,gpu-3 a\ngpu-2 b\ngpu-1,gpu-3 s\n"
