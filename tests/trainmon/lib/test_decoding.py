"""Decoders that threads share from their first use on."""

from __future__ import annotations

import subprocess
import sys

import pytest

RACE = """
import os, sys, threading, msgspec
from trainmon.lib.threads import decoder

threading.excepthook = lambda _: os._exit(3)

sys.setswitchinterval(1e-6)
for n in range(40):
    fields = [(f"f{j}", "int | None", None) for j in range(8)]
    inner = [msgspec.defstruct(f"Inner{n}_{k}", fields, namespace={"__module__": __name__}) for k in range(12)]
    outer = msgspec.defstruct(f"Outer{n}", [(f"a{k}", kind | None, None) for k, kind in enumerate(inner)])
    together = threading.Barrier(4)

    def decode():
        together.wait()
        DECODE

    threads = [threading.Thread(target=decode) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""
TEXT = """b'{"a0": {"f1": 1}, "a11": {"f7": 2}}'"""


def race(decode: str, imported: str = "") -> int:
    code = f"{imported}\n{RACE.replace('DECODE', decode)}"
    return subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode


def test_threads_that_decode_a_type_for_the_first_time_at_once_all_get_it() -> None:
    assert race(f"decoder(outer).decode({TEXT})") == 0


def test_threads_that_look_at_ranks_for_the_first_time_at_once_all_get_their_answers() -> None:
    imported = "from trainmon.runtime.looks.nodes import by_rank"
    answers = """{"n1": [{"a0": {"f1": 1}, "a11": {"f7": 2}}]}"""
    assert race(f"by_rank({answers}, {{'n1': [0]}}, list[outer])", imported) == 0


def test_a_thread_that_fails_is_noticed() -> None:
    assert race("1 / 0") == 3


@pytest.mark.slow
def test_msgspec_alone_dies_of_it() -> None:
    """When this fails, msgspec is repaired, and trainmon.lib.threads is no longer needed."""
    assert any(race(f"msgspec.json.decode({TEXT}, type=outer)") < 0 for _ in range(10))
