"""What goes wrong on a node costs its own row, and nothing else stops."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.end_to_end.product import QUICK, Cluster, Product, Screen, step_line
from tests.lab.hung_mount import HungMount
from tests.lab.nvml import GPU_IS_LOST, NO_PERMISSION

StartCluster = Callable[..., Cluster]


def keeps_moving(screen: Screen, nodes: Cluster, node: int, gpu: int, degrees: int) -> None:
    """A change on a GPU that is well reaches the screen."""
    nodes.nvml[node].set(gpu, temperature=degrees)
    screen.until_line(f" n{node} ", rf"\b{degrees}\b")


def test_a_lost_gpu_is_one_cell_and_the_others_keep_reporting(product: Product, cluster: StartCluster) -> None:
    nodes = cluster(2, gpus=4)
    screen = product.screen("n0", "n1", columns=200)
    screen.until_shown("ssh 2/2")
    nodes.nvml[1].error(2, "*", GPU_IS_LOST)
    row = screen.until_line(" n1 ", "LOST gpu2")
    assert row.count("41") == 3
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


def gpus_of(told: dict[str, Any]) -> list[dict[str, Any]]:
    (node,) = told["nodes"]
    found: list[dict[str, Any]] = node["gpus"]
    return found


def test_a_driver_that_hangs_costs_its_row_and_comes_back(product: Product, cluster: StartCluster) -> None:
    nodes = cluster(2, gpus=2)
    log = product.work / "train.log"
    log.write_text(step_line(1))
    config = product.config(f'[cluster]\nlogin = "n0"\nnodes = ["n[0-1]"]\n[[run]]\nname = "llm"\nlog = "{log}"\n')
    screen = product.screen("--config", str(config), columns=200)
    screen.until_shown("ssh 2/2", r"iteration +1/")
    nodes.nvml[0].hang(1, "nvmlDeviceGetTemperature").hang(1, "nvmlDeviceGetTemperatureV")
    screen.until_line(" n0 ", "gpu: NVML: no answer for \\d+ s")
    keeps_moving(screen, nodes, 1, 0, 57)
    with log.open("a") as more:
        more.write(step_line(2))
    text = screen.until_shown(r"iteration +2/", "ssh 2/2")
    assert [text.count(f"iteration {step:8}/") for step in (1, 2)] == [1, 1]
    nodes.nvml[0].clear(gpus=2).set(0, temperature=58)
    screen.until_line(" n0 ", r"\b58\b")


def test_a_hung_mount_is_one_disk_and_everything_else_goes_on(product: Product, cluster: StartCluster) -> None:
    mount = HungMount.at(product.folder / "scratch", product.folder)
    shim = {name: mount.env[name] for name in ("LD_PRELOAD", "HUNG_PREFIX", "HUNG_WHILE")}
    nodes = cluster(1, gpus=2, env=shim)
    log = product.work / "train.log"
    log.write_text(step_line(1))
    config = product.config(
        f'[cluster]\nlogin = "n0"\nnodes = ["n0"]\n[[run]]\nname = "llm"\nlog = "{log}"\n'
        f'[[disk]]\npath = "{mount.folder}"\non = "nodes"\n[[disk]]\npath = "/"\non = "nodes"\n'
    )
    mount.hang()
    screen = product.screen("--config", str(config), columns=200)
    screen.until_line("✗ n0:/", r"hung: no answer for \d+ ?s")
    screen.until_shown("ssh 1/1", r"iteration +1/")
    keeps_moving(screen, nodes, 0, 0, 59)
    with log.open("a") as more:
        more.write(step_line(2))
    screen.until_shown(r"iteration +2/")
    assert screen.leave() < QUICK


WEDGED = """#!/bin/sh
exec sleep 1000
"""


def test_a_wedged_nvidia_smi_costs_the_gpus_of_its_node_only(product: Product, cluster: StartCluster) -> None:
    folder = product.folder / "bin"
    folder.mkdir()
    (folder / "nvidia-smi").write_text(WEDGED)
    (folder / "nvidia-smi").chmod(0o755)
    path = f"{folder}:/usr/local/bin:/usr/bin:/bin"
    nodes = cluster(1, gpus=1, env={"PATH": path, "LD_LIBRARY_PATH": str(Path("/nonexistent"))})
    nodes_config = product.config('[cluster]\nnodes = ["n0"]\n')
    screen = product.screen("--config", str(nodes_config), columns=200)
    screen.until_line(" n0 ", r"(?i)gpu: .*(hung|does not answer|stuck)")
    screen.until_shown("ssh 1/1", "n0:/ ")
    assert screen.leave() < QUICK
    assert nodes.sshd.pid
