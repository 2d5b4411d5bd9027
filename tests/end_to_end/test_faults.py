"""What goes wrong on a node costs its own row, and nothing else stops."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.end_to_end.product import QUICK, Cluster, Product, Screen, step_line
from tests.lab.hung_mount import HungMount
from tests.lab.nvml import GPU_IS_LOST, NO_PERMISSION

StartCluster = Callable[..., Cluster]


def keeps_moving(screen: Screen, nodes: Cluster, node: int, gpu: int, percent: int) -> None:
    """A change on a GPU that is well reaches the screen."""
    nodes.nvml[node].set(gpu, utilization=percent)
    screen.until_line(f"n{node} ", rf"\b{percent}\b")


def test_a_lost_gpu_is_one_cell_and_the_others_keep_reporting(product: Product, cluster: StartCluster) -> None:
    nodes = cluster(2, gpus=4)
    screen = product.screen("n0", "n1", columns=200)
    screen.until_shown("ssh 2/2")
    nodes.nvml[1].error(2, "*", GPU_IS_LOST)
    row = screen.until_line("n1 ", "LOST gpu2")
    assert row.count("97 ") == 3
    keeps_moving(screen, nodes, 1, 0, 55)
    keeps_moving(screen, nodes, 0, 0, 56)
    screen.keys("2g\r")
    screen.until_shown("GPU is lost")


def test_a_field_that_the_driver_refuses_is_unknown_and_not_nought(product: Product, cluster: StartCluster) -> None:
    nodes = cluster(1, gpus=2)
    nodes.nvml[0].error(1, "nvmlDeviceGetPowerUsage", NO_PERMISSION)
    first, second = gpus_of(product.snapshot("n0"))
    assert (first["power_w"], second["power_w"]) == (632.0, None)
    assert (second["state"], second["temperature_c"]) == ("ok", 41)


def gpus_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    (node,) = document["nodes"]
    found: list[dict[str, Any]] = node["gpus"]
    return found


WEDGED = """#!/bin/sh
exec sleep 1000
"""


def wedged_smi(folder: Path) -> dict[str, str]:
    """The environment of a node without NVML whose nvidia-smi never answers."""
    folder.mkdir()
    (folder / "nvidia-smi").write_text(WEDGED)
    (folder / "nvidia-smi").chmod(0o755)
    return {"PATH": f"{folder}:/usr/local/bin:/usr/bin:/bin", "LD_LIBRARY_PATH": "/nonexistent"}


THREE_FAULTS = """
[cluster]
login = "n0"
nodes = ["n[0-3]"]
[[run]]
name = "llm"
log = "{log}"
[[disk]]
path = "{mount}"
on = "nodes"
"""


def test_a_hung_driver_a_hung_mount_and_a_wedged_nvidia_smi_cost_one_row_each(
    product: Product, cluster: StartCluster
) -> None:
    mount = HungMount.at(product.folder / "scratch", product.folder)
    shim = {name: mount.env[name] for name in ("LD_PRELOAD", "HUNG_PREFIX", "HUNG_WHILE")}
    nodes = cluster(4, own={2: shim, 3: wedged_smi(product.folder / "bin")})
    mount.hang()
    log = product.work / "train.log"
    log.write_text(step_line(1))
    config = product.config(THREE_FAULTS.format(log=log, mount=mount.folder))
    screen = product.screen("--config", str(config), columns=200, rows=60)
    screen.until_shown("ssh 4/4", r"iteration +1/")
    nodes.nvml[0].hang(1, "nvmlDeviceGetTemperature").hang(1, "nvmlDeviceGetTemperatureV")

    screen.until_line("n0 ", r"gpu: NVML: no answer for \d+s")
    screen.until_line("n2:/", r"hung: no answer for \d+s")
    screen.until_line("n3 ", r"gpu: nvidia-smi(: no answer| does not answ)")
    keeps_moving(screen, nodes, 1, 0, 57)
    keeps_moving(screen, nodes, 2, 1, 58)
    with log.open("a") as more:
        more.write(step_line(2))
    text = screen.until_shown(r"iteration +2/", "ssh 4/4", r"n\[0-1,3\]:/.*%")
    assert [text.count(f"iteration {step:8}/") for step in (1, 2)] == [1, 1]

    nodes.nvml[0].clear(gpus=2).set(0, utilization=59)
    screen.until_line("n0 ", r"\b59\b")
    assert screen.leave() < QUICK
