"""snapshot, as scripts use it: the contract of its JSON, and exit codes that can be trusted."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable
from pathlib import Path

from tests.end_to_end.contract import SNAPSHOT, breaches
from tests.end_to_end.product import Cluster, Product, step_line
from tests.lab.disks import OF_ANY_DISK
from tests.lab.hung_mount import HungMount
from tests.lab.sshd import keygen

StartCluster = Callable[..., Cluster]

RUN_CONFIG = """
[cluster]
name = "lab"
login = "n0"
nodes = ["n[0-3]"]
[[run]]
name = "llm"
nodes = ["n[0-3]"]
log = "{work}/logs/*.out"
checkpoints = "{work}/ckpt"
kill_switch = "{work}/kill"
save_switch = "{work}/save"
target_step = 1000
[[disk]]
path = "{work}"
usable = "99%"
[[disk]]
path = "/"
on = "nodes"
"""


def test_four_nodes_with_a_run_keep_the_contract_in_every_field(product: Product, cluster: StartCluster) -> None:
    nodes = cluster(4, gpus=8)
    nodes.nvml[1].process(3, 1, 70_000)
    (product.work / "logs").mkdir()
    (product.work / "ckpt").mkdir()
    (product.work / "logs" / "7.out").write_text("starting\n" + "".join(step_line(step) for step in (119, 120)))
    (product.work / "kill").write_text("loss is NaN\n")
    config = product.config(RUN_CONFIG.format(work=product.work) + OF_ANY_DISK)

    result = product.snapshot("--config", str(config))

    assert list(breaches(result)) == []
    assert result["version"] == 1
    assert result["verdict"] == "well"
    assert [(source["name"], source["health"]) for source in result["sources"]] == [
        (f"node:n{number}", "ok") for number in range(4)
    ]
    found = {node["name"]: node for node in result["nodes"]}
    assert sorted(found) == ["n0", "n1", "n2", "n3"]
    assert {(node["probe"], len(node["gpus"]), node["gpus_expected"]) for node in found.values()} == {("nvml", 8, 8)}
    gpu = found["n1"]["gpus"][3]
    assert (gpu["state"], gpu["temperature_c"], gpu["memory_total_mib"], gpu["mig"]) == ("ok", 41, 81559, False)
    assert [(process["pid"], process["memory_mib"]) for process in gpu["processes"]] == [(1, 70_000)]
    assert found["n0"]["memory_total_mib"] > found["n0"]["memory_used_mib"] > 0

    (run,) = result["runs"]
    assert (run["name"], run["step"], run["target_step"], run["loss"]) == ("llm", 120, 1000, 2.113)
    assert (run["grad_norm"], run["step_time_s"], run["nodes"]) == (0.31, 4.1, ["n0", "n1", "n2", "n3"])
    # The first that answers reads the shared files, and n0 takes over when it is there, too.
    assert run["log"]["host"] in found
    assert run["log"]["path"] == f"{product.work}/logs/7.out"
    assert run["log"]["tail"][-1] == step_line(120).rstrip("\n")
    kill, save = run["switches"]["kill"], run["switches"]["save"]
    assert (kill["path"], kill["by"], kill["why"]) == (f"{product.work}/kill", getpass.getuser(), "loss is NaN")
    assert abs(kill["armed_at"] - (product.work / "kill").stat().st_mtime) < 1
    assert save == {"path": f"{product.work}/save", "armed_at": None, "by": None, "error": None, "taken_at": None}

    disks = {(disk["host"], disk["path"]): disk for disk in result["disks"]}
    reader = next(host for host, path in disks if path == str(product.work))
    assert {*((f"n{number}", "/") for number in range(4))} <= set(disks)
    shared = disks[reader, str(product.work)]
    assert 0 <= shared["usable_free_bytes"] < shared["free_bytes"] < shared["total_bytes"]
    assert [result["jobs"], result["spares"], result["alerts"]] == [[], [], []]


def test_the_contract_notices_what_is_missing_and_what_is_of_another_type() -> None:
    result = dict.fromkeys(SNAPSHOT, None) | {"nodes": [{"name": 1}], "version": True}
    assert "$.version is True, not int" in list(breaches(result))
    assert "$.nodes[0].name is 1, not str" in list(breaches(result))
    assert "$.nodes[0].gpus is missing" in list(breaches(result))


def test_all_hosts_down_is_exit_3_and_each_says_why(product: Product, cluster: StartCluster) -> None:
    nodes = cluster(2)
    nodes.sshd.stop()
    result = product.snapshot("n0", "n1", status=3)
    assert list(breaches(result)) == []
    assert result["verdict"] == "blind"
    assert [source["health"] for source in result["sources"]] == ["down", "down"]
    assert all("refuses connections" in source["error"] for source in result["sources"])


GONE = "Host gone gone-*\n  HostName 127.0.0.1\n  Port 1\n"


def test_one_host_of_two_that_does_not_answer_is_a_warning_and_exit_3(product: Product, cluster: StartCluster) -> None:
    nodes = cluster(1)
    product.ssh_config = nodes.sshd.ssh_config(1, extra=GONE)
    result = product.snapshot("n0", "gone", status=3)
    assert result["verdict"] == "warning"
    assert {source["name"]: source["health"] for source in result["sources"]}["node:n0"] == "ok"
    assert [source["health"] for source in result["sources"]].count("down") == 1


def test_the_only_host_that_was_requested_is_not_hidden_by_its_login_host(
    product: Product, cluster: StartCluster
) -> None:
    nodes = cluster(1)
    product.ssh_config = nodes.sshd.ssh_config(1, extra=GONE)
    config = product.config('[cluster]\nlogin = "n0"\nnodes = ["gone", "n0"]\n')
    result = product.snapshot("--config", str(config), "gone", status=3)
    assert result["verdict"] == "blind"
    assert {source["name"]: source["health"] for source in result["sources"]} == {"node:n0": "ok", "node:gone": "down"}


def test_most_nodes_down_and_a_full_disk_are_critical_before_their_holds_are_over(
    product: Product, cluster: StartCluster
) -> None:
    """As cron has it: one look, no daemon, no ledger."""
    nodes = cluster(4)
    product.ssh_config = nodes.sshd.ssh_config(4, extra=GONE)
    most = product.config('[cluster]\nlogin = "n0"\nnodes = ["n[0-3]", "gone-[0-7]"]\n', "most.toml")
    result = product.snapshot("--config", str(most), status=1)
    assert result["verdict"] == "critical"
    seen = {alert["rule"]: (alert["severity"], alert["phase"]) for alert in result["alerts"]}
    assert seen["cluster-unreachable"] == ("critical", "pending")

    disk = os.statvfs("/")
    used = 1 - disk.f_bfree / disk.f_blocks
    full = product.config(
        f'[cluster]\nnodes = ["n0"]\n[[disk]]\npath = "/"\non = "nodes"\nusable = "{50 * used:.4f}%"\n'
    )
    result = product.snapshot("--config", str(full), status=1)
    assert result["verdict"] == "critical"
    assert [(one["rule"], one["severity"], one["phase"]) for one in result["alerts"]] == [
        ("disk-full", "critical", "pending")
    ]


def test_a_mount_that_hangs_where_a_node_stands_in_for_the_login_host_is_unknown(
    product: Product, cluster: StartCluster
) -> None:
    """Only the login host judges it, and that is down."""
    mount = HungMount.at(product.folder / "scratch", product.folder)
    shim = {name: mount.env[name] for name in ("LD_PRELOAD", "HUNG_PREFIX", "HUNG_WHILE")}
    nodes = cluster(1, own={0: shim})
    product.ssh_config = nodes.sshd.ssh_config(1, extra=GONE)
    mount.hang()
    config = product.config(
        f'[cluster]\nlogin = "gone"\nnodes = ["n0"]\n[[disk]]\npath = "{mount.folder}"\n'
        f'[[run]]\nname = "llm"\ncheckpoints = "{mount.folder}"\n'
    )
    result = product.snapshot("--config", str(config), status=3)
    assert result["verdict"] == "warning"
    assert result["disks"] == []
    assert {one["rule"] for one in result["alerts"]} - {"source-late"} == {"node-unreachable"}


def test_a_mount_that_hangs_is_waited_for_on_the_host_that_judges_it(product: Product, cluster: StartCluster) -> None:
    mount = HungMount.at(product.folder / "scratch", product.folder)
    cluster(1, own={0: {name: mount.env[name] for name in ("LD_PRELOAD", "HUNG_PREFIX", "HUNG_WHILE")}})
    mount.hang()
    config = product.config(
        f'[cluster]\nlogin = "n0"\nnodes = ["n0"]\n[[disk]]\npath = "{mount.folder}"\n'
        f'[[run]]\nname = "llm"\ncheckpoints = "{mount.folder}"\n'
    )
    result = product.snapshot("--config", str(config), status=1)
    assert result["verdict"] == "critical"
    assert [(disk["path"], disk["state"]) for disk in result["disks"]] == [(str(mount.folder), "hung")]
    assert [one["rule"] for one in result["alerts"] if one["severity"] == "critical"] == ["disk-hung"]


def test_a_node_behind_two_hops_is_reached_through_both(product: Product, cluster: StartCluster) -> None:
    nodes = cluster(3)
    extra = "Host n2\n  ProxyJump n1\nHost n1\n  ProxyJump n0\n"
    product.ssh_config = nodes.sshd.ssh_config(3, extra=extra)
    result = product.snapshot("n2")
    assert [(node["name"], len(node["gpus"])) for node in result["nodes"]] == [("n2", 2)]
    log = nodes.sshd.log.read_text()
    assert log.count("Accepted publickey") == 3
    assert [log.count(f" on {nodes.sshd.address(number)} ") for number in range(3)] == [1, 1, 1]


def test_a_node_without_python_is_read_by_the_shell_and_says_so(product: Product, cluster: StartCluster) -> None:
    cluster(1)
    config = product.config('[cluster]\nnodes = ["n0"]\npython = "/nonexistent/python3"\n')
    result = product.snapshot("--config", str(config))
    (node,) = result["nodes"]
    assert node["probe"] == "sh"
    assert node["note"].startswith("no usable python3")
    assert node["memory_total_mib"] > node["memory_used_mib"] > 0
    assert next((disk["path"], disk["state"]) for disk in result["disks"]) == ("/", "ok")


def test_a_python_that_ends_at_once_is_no_node_that_is_down(product: Product, cluster: StartCluster) -> None:
    cluster(1)
    broken = product.folder / "broken"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    config = product.config(f'[cluster]\nnodes = ["n0"]\npython = "{broken}"\n')
    result = product.snapshot("--config", str(config))
    assert [(node["name"], node["probe"]) for node in result["nodes"]] == [("n0", "sh")]


def test_a_login_that_needs_a_person_is_an_error_that_says_what_to_set_up(
    product: Product, cluster: StartCluster
) -> None:
    nodes = cluster(1)
    locked = keygen(product.folder / "locked", passphrase="secret")
    with nodes.sshd.authorized.open("a") as authorized:
        authorized.write(nodes.sshd.public(locked) + "\n")
    config = nodes.sshd.ssh_config(1)
    config.write_text(config.read_text().replace(str(nodes.sshd.key), str(locked)))
    result = product.snapshot("n0", status=3)
    (source,) = result["sources"]
    assert source["health"] == "down"
    assert source["error"]
    assert "ssh-add" in source["hint"] or "passphrase" in source["hint"]


def test_a_mistake_in_the_config_is_exit_2_with_file_table_key_and_the_nearest_one(product: Product) -> None:
    product.config('[[run]]\nname = "a"\nchekpoints = "/c"\n', "trainmon.toml")
    for argv in (("snapshot",), ("snapshot", "--json")):
        done = product.run(*argv)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(
            'trainmon-tui: trainmon.toml: [[run]] #1 (a): unknown setting "chekpoints"; did you mean "checkpoints"?'
        )


def test_a_config_here_that_others_can_write_is_refused_in_words(product: Product) -> None:
    product.config("read_only = true\n", "trainmon.toml").chmod(0o666)
    done = product.run("snapshot", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "trainmon.toml" in done.stderr
    assert "chmod go-w" in done.stderr


def test_the_table_of_a_snapshot_is_plain_text_where_it_must_be(product: Product, cluster: StartCluster) -> None:
    cluster(1)
    done = product.run("snapshot", "n0", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert "\x1b" not in done.stdout
    assert "n0" in done.stdout


def test_this_machine_without_any_config_is_reported_and_nothing_is_logged(product: Product) -> None:
    result = product.snapshot()
    assert list(breaches(result)) == []
    assert [source["health"] for source in result["sources"]] == ["ok"]
    assert Path(product.home, ".local/state/trainmon-tui/trainmon.log").read_text() == ""
