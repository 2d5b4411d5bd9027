"""check, on real hosts: every step is told, the first that fails says what to do, and the others are still told."""

from __future__ import annotations

import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.lab.sshd import Sshd, keygen, program
from tests.trainmon.cli.test_main import trainmon
from trainmon.cli.check.state import Logs, host_rows
from trainmon.cli.check.watch import Row, Watch
from trainmon.config import (
    ClusterSettings,
    ConnectSettings,
    DiskSettings,
    LogFormatSettings,
    QuotaSettings,
    RunSettings,
    Settings,
)
from trainmon.job.trainmon_hooks import Hooks
from trainmon.model import ON_NODE, LogChunk, LogSpec, Spec

HERE = Settings(disks=(DiskSettings(path="/"),))


def look(settings: Settings, ssh_config: Path | None = None) -> list[list[Row]]:
    watch = Watch(settings, ssh_config=ssh_config)
    with watch.monitor:
        return list(host_rows(watch))


def of(rows: list[Row]) -> list[tuple[str, str]]:
    return [(row.mark, row.what) for row in rows]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its own: where squeue is installed, a login shell is asked for its Slurm, and reads a profile there."""
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with Sshd.start(tmp_path_factory.mktemp("sshd")) as running:
        yield running


def cluster(*nodes: str) -> ClusterSettings:
    return ClusterSettings(name="lab", nodes=nodes, connect=ConnectSettings(timeout=5.0))


def test_this_machine_needs_no_connection() -> None:
    (rows,) = look(HERE)
    assert ("ok", "probe") in of(rows)
    assert ("ok", "/") in of(rows)
    assert not [row for row in rows if row.what in ("name", "connection", "host key", "login")]


def test_every_step_to_a_host_is_reported(sshd: Sshd) -> None:
    settings = Settings(clusters=(cluster("n0", "n1"),), disks=(DiskSettings(path="/", on="nodes"),))
    first, second = look(settings, sshd.ssh_config(2))
    steps = [("ok", "name"), ("ok", "connection"), ("ok", "host key"), ("ok", "login"), ("ok", "probe")]
    assert of(first)[:5] == steps
    assert of(second)[:5] == steps
    assert {row.subject for row in first} == {"n0"}
    assert ("ok", "/") in of(second)


def test_an_unknown_host_key_stops_there_and_says_how_to_add_it(sshd: Sshd, tmp_path: Path) -> None:
    extra = f"Host n0\n  UserKnownHostsFile {tmp_path}/none\n"
    bad, good = look(Settings(clusters=(cluster("n0", "n1"),)), sshd.ssh_config(2, extra=extra))
    assert of(bad) == [("ok", "name"), ("ok", "connection"), ("bad", "host key")]
    assert "SHA256:" in bad[-1].text + bad[-1].fix
    assert ("ok", "probe") in of(good)


def test_a_refused_login_says_what_to_do(sshd: Sshd, tmp_path: Path) -> None:
    stranger = keygen(tmp_path / "stranger")
    extra = f"Host n0\n  IdentityFile {stranger}\n  IdentitiesOnly yes\n"
    config = sshd.ssh_config(1, extra=extra, path=tmp_path / "config")
    config.write_text(config.read_text().replace(f"IdentityFile {sshd.key}", ""))
    (rows,) = look(Settings(clusters=(cluster("n0"),)), config)
    assert of(rows) == [("ok", "name"), ("ok", "connection"), ("ok", "host key"), ("bad", "login")]
    assert rows[-1].fix


def test_where_the_ssh_command_could_log_in_it_is_proposed(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/none")
    options = {"PubkeyAuthentication": "no", "PasswordAuthentication": "yes"}
    with (
        Sshd.start(tmp_path / "asks", **options) as asks,
        Sshd.start(tmp_path / "kerberos", PubkeyAuthentication="no", GSSAPIAuthentication="yes") as kerberos,
    ):
        extra = "".join(
            f"Host {name}\n  HostName 127.0.10.1\n  Port {server.port}\n  UserKnownHostsFile {server.known_hosts}\n"
            for name, server in (("n0", asks), ("n1", kerberos))
        )
        config = sshd.ssh_config(1, extra=extra, path=tmp_path / "config")
        first, second = look(Settings(clusters=(cluster("n0", "n1"),)), config)
        never = replace(cluster("n1"), connect=ConnectSettings(by="paramiko"))
        (third,) = look(Settings(clusters=(never,)), config)
        config.write_text(f"Host *\n  ControlPath {tmp_path}/%n\n{config.read_text()}")
        (waits,) = look(Settings(clusters=(cluster("n0"),)), config)
    steps = [("ok", "name"), ("ok", "connection"), ("ok", "host key"), ("bad", "login")]
    master, proposed = "an open master connection of ssh logs in without a prompt", ("note", "openssh")
    set_up = "set ControlMaster auto, ControlPath ~/.ssh/%C and ControlPersist 8h in ~/.ssh/config, then: ssh "
    assert of(first) == [*steps, proposed]
    assert first[-1] == Row("note", "n0", "openssh", master, f"{set_up}n0")
    ticket = "a Kerberos ticket may log in"
    enable = "set GSSAPIAuthentication yes in ~/.ssh/config, then: kinit"
    assert of(second) == [*steps, proposed, proposed]
    assert [(row.text, row.fix) for row in second[-2:]] == [(ticket, enable), (master, f"{set_up}n1")]
    sentence = 'n1 is never logged in to by the ssh command: connect.by = "paramiko"'
    assert (third[4].text, third[4].fix) == (sentence, 'set connect.by = "ssh"')
    assert of(waits) == steps
    assert waits[-1].text == "n0 needs a password, and nobody can be asked"
    assert waits[-1].fix == f"open a master connection: ssh -M -F {config} n0"


def test_a_login_over_a_master_connection_is_told(sshd: Sshd, tmp_path: Path) -> None:
    stranger, master = keygen(tmp_path / "stranger"), f"Host *\n  ControlPath {tmp_path}/%n\n"
    config = sshd.ssh_config(1, extra=f"Host n0\n  IdentityFile {stranger}\n{master}", path=tmp_path / "config")
    config.write_text(config.read_text().replace(f"IdentityFile {sshd.key}", ""))
    ssh = [program("ssh"), "-F", str(config)]
    (refused,) = look(Settings(clusters=(cluster("n0"),)), config)
    assert of(refused)[3:] == [("bad", "login"), ("note", "openssh")]
    assert refused[-1].fix == f"open a master connection: ssh -M -F {config} n0"
    subprocess.run([*ssh, "-i", str(sshd.key), "-fNM", "n0"], check=True, capture_output=True)
    try:
        (rows,) = look(Settings(clusters=(cluster("n0"),)), config)
    finally:
        subprocess.run([*ssh, "-O", "exit", "n0"], check=True, capture_output=True)
    assert of(rows)[:5] == [("ok", "name"), ("ok", "connection"), ("ok", "host key"), ("ok", "login"), ("ok", "probe")]
    assert rows[3].text == "by the ssh command, over the open master connection"


def test_an_interpreter_that_ends_without_a_word_is_replaced_before_the_host_is_judged(
    sshd: Sshd, tmp_path: Path
) -> None:
    broken = tmp_path / "python3"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    lab = ClusterSettings(name="lab", nodes=("n0",), python=str(broken), connect=ConnectSettings(timeout=5.0))
    (rows,) = look(Settings(clusters=(lab,)), sshd.ssh_config(1))
    assert next((row.mark, row.text) for row in rows if row.what == "probe") == ("ok", "sh")
    assert [row for row in rows if row.mark == "bad"] == []


def test_a_name_without_an_address_and_a_closed_port_are_distinguished(sshd: Sshd, tmp_path: Path) -> None:
    extra = f"Host n0\n  HostName no-such-host.invalid\nHost n1\n  Port 1\nHost n2\n  HostName {'a' * 64}\n"
    nameless, closed, long = look(Settings(clusters=(cluster("n0", "n1", "n2"),)), sshd.ssh_config(3, extra=extra))
    assert of(nameless) == [("bad", "name")]
    assert nameless[0].text.startswith("no-such-host.invalid cannot be resolved: ")
    assert nameless[0].fix == (
        "correct the name in the config, or HostName in ~/.ssh/config; try: getent hosts no-such-host.invalid"
    )
    assert of(closed) == [("ok", "name"), ("bad", "connection")]
    assert long[0].text == f"{'a' * 64} cannot be resolved: a part of it is empty or longer than 63 characters"


def test_every_path_of_a_run_is_checked_where_it_is_read(sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "1.out").write_text("step 1\n")
    (tmp_path / "kill").touch()
    good = RunSettings(
        name="good",
        log=f"{tmp_path}/logs/*.out",
        checkpoints=str(tmp_path / "logs"),
        kill_switch=str(tmp_path / "kill"),
        save_switch=str(tmp_path / "save"),
    )
    bad = RunSettings(name="bad", log=f"{tmp_path}/none/*.out", checkpoints=f"{tmp_path}/nowhere")
    lab = ClusterSettings(name="lab", login="n0", nodes=("n1",))
    reader, other, missing = look(Settings(clusters=(lab,), runs=(good, bad)), sshd.ssh_config(2))
    fields = {(row.mark, row.what, row.text) for row in reader}
    assert ("ok", f"{tmp_path}/logs/*.out", f"followed: {tmp_path}/logs/1.out") in fields
    assert ("ok", str(tmp_path / "logs"), "can be entered") in fields
    assert ("ok", str(tmp_path), "switches can be created") in fields
    assert ("ok", str(tmp_path / "kill"), "armed") in fields
    assert ("ok", str(tmp_path / "save"), "not armed") in fields
    nowhere = [(row.mark, row.text) for row in reader if row.what == f"{tmp_path}/nowhere"]
    assert nowhere == [("bad", f"does not exist; the nearest existing parent is {tmp_path}")]
    (lost,) = missing
    assert lost[:3] == ("bad", "n0", f"{tmp_path}/none/*.out")
    assert lost.fix == "start the run bad, or fix its `log` in the config"
    assert not [row for row in other if row.what.startswith(str(tmp_path))]


@pytest.mark.parametrize("hosts", [("n0", "n1"), ("n1", "n0"), ("n0",)])
def test_a_log_that_only_a_node_of_the_run_has_is_missing_on_no_host(hosts: tuple[str, ...]) -> None:
    checks = Logs(Watch(Settings()))
    rows: list[Row] = []
    shared, own = LogSpec("a", "/l/a.out"), LogSpec(f"{ON_NODE}a", "/l/a.out", optional=True, local=True)
    chunks = {
        "n0": LogChunk(1, 0.0, shared.id, error="/l/a.out does not exist"),
        "n1": LogChunk(1, 0.0, own.id, "/l/a.out", lines=("step 5: loss 2.1, lr 1e-4",)),
    }
    for host in hosts:
        spec = Spec(logs=(shared if host == "n0" else own,))
        chunk = chunks[host]
        rows += checks.rows(host, spec, {(LogChunk, chunk.id): chunk}, ())
    missing = [(row.subject, row.text) for row in (*rows, *checks.missing.values()) if row and row.mark == "bad"]
    assert missing == ([("n0", "/l/a.out does not exist")] if hosts == ("n0",) else [])


def test_a_pattern_that_matches_the_logs_of_another_run_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a-1.out").write_text("step 1\n")
    (tmp_path / "b-1.out").write_text("step 9\n")
    runs = (RunSettings(name="a", log=f"{tmp_path}/*.out"), RunSettings(name="b", log=f"{tmp_path}/b-*.out"))
    rows = [row for rows in look(Settings(runs=runs)) for row in rows if str(tmp_path) in row.what]
    assert [(row.mark, row.text) for row in rows if row.what.endswith(".out")] == [
        ("note", "may also match logs of b, which are not read for a"),
        ("ok", f"followed: {tmp_path}/a-1.out"),
        ("ok", f"followed: {tmp_path}/b-1.out"),
    ]


def test_a_log_that_two_runs_follow_is_reported(tmp_path: Path) -> None:
    for name in ("a.out", "c.out"):
        (tmp_path / name).write_text(KNOWN)
    runs = tuple(RunSettings(name=name, log=f"{tmp_path}/{file}.out") for name, file in ("aa", "ba", "cc"))
    rows = [row for rows in look(Settings(runs=runs)) for row in rows if row.text.startswith("followed: ")]
    assert [(row.mark, row.text.removeprefix(f"followed: {tmp_path}/"), row.fix) for row in rows] == [
        ("note", "a.out, also for b", "give each run a `log` of its own"),
        ("note", "a.out, also for a", "give each run a `log` of its own"),
        ("ok", "c.out", ""),
    ]


# ---- what is read in the logs ---------------------------------------------------------------------------------------

KNOWN = "".join(f"iter {n}: loss 3.{99 - n}, time 31{n}.5ms\n" for n in range(10, 40))
NAMELESS = "".join(f"10:00:{n} >> {n}0 done, nll 2.{99 - n}\n" for n in range(10, 40))


def logs(tmp_path: Path, texts: dict[str, str], *formats: LogFormatSettings) -> dict[str, Row]:
    """The rows about logs and formats, on this machine."""
    for name, text in texts.items():
        (tmp_path / f"{name}.out").write_text(text)
    runs = tuple(RunSettings(name=name, log=f"{tmp_path}/{name}.out") for name in texts)
    found = [row for rows in look(Settings(runs=runs, log_formats=formats)) for row in rows]
    return {row.what: row for row in found if row.what.startswith("log of ") or row.subject == "log_format"}


def test_the_last_step_of_a_log_is_reported_with_its_format(tmp_path: Path) -> None:
    mine = LogFormatSettings(name="mine", template="{step} done, nll {loss}")
    rows = logs(tmp_path, {"known": KNOWN, "own": NAMELESS, "new": ""}, mine)
    learned = 'learned: "iter {step}: loss {loss}, time {step_time_ms}ms"'
    assert rows["log of known"][0::3] == ("ok", f"step 39, format {learned}")
    assert rows["log of own"][0::3] == ("ok", "step 390, format mine")
    assert rows["log of new"][0::3] == ("note", "empty so far: its format is not known yet")
    assert rows["mine"][0::3] == ("ok", "matches lines of own")


def test_a_log_without_a_step_comes_with_a_block_that_reads_it(tmp_path: Path) -> None:
    row = logs(tmp_path, {"own": NAMELESS})["log of own"]
    assert row[0::3] == ("bad", "no step in its last 30 lines")
    assert row.fix.startswith("if training has begun, add this to the config; `trainmon-tui log-format own` shows")
    block = tomllib.loads(row.fix.partition("\n")[2])["log_format"][0]
    assert block == {"name": "own", "template": "{step} done, nll {loss}"}
    assert logs(tmp_path, {"own": NAMELESS}, LogFormatSettings(**block))["log of own"].mark == "ok"
    starting = logs(tmp_path, {"own": "importing torch\n"})["log of own"]
    assert starting.text == "no step in its last 1 line"
    assert "with a step line of the log as its template" in starting.fix


def test_a_log_format_that_matches_nothing_comes_with_one_that_does(tmp_path: Path) -> None:
    old = LogFormatSettings(name="old", template="it {step}: l {loss}")
    row = logs(tmp_path, {"known": KNOWN, "own": NAMELESS}, old)["old"]
    assert row[0::3] == ("bad", "matches no line of 2 logs")
    assert row.fix.splitlines()[0] == "remove it or correct it; for the log of own:"
    assert 'template = "{step} done, nll {loss}"' in row.fix
    row = logs(tmp_path, {"known": KNOWN, "new": ""}, old)["old"]
    assert row[0::3] == ("note", "matches no line of 1 log; not read or empty: 1 log")
    assert logs(tmp_path, {"new": ""}, old)["old"][0::3] == ("note", "not tested: no log has lines to read")


# ---- the answer on the terminal -------------------------------------------------------------------------------------


def test_all_mistakes_of_a_config_are_listed(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('readonly = 1\n[[run]]\nname = "a"\nlogg = "/l"\n')
    done = trainmon("check", "--config", "c.toml", cwd=tmp_path, LC_ALL="C.UTF-8")
    assert (done.returncode, done.stderr) == (2, "")
    first, second = done.stdout.splitlines()
    assert first == '✗ config       c.toml: unknown setting "readonly"; did you mean "read_only"?'
    assert second == '✗ config       c.toml: [[run]] #1 (a): unknown setting "logg"; did you mean "log"?'


def test_a_block_for_the_config_stands_below_its_row(tmp_path: Path) -> None:
    (tmp_path / "own.out").write_text(NAMELESS)
    (tmp_path / "c.toml").write_text(f'[[run]]\nname = "own"\nlog = "{tmp_path}/own.out"\n')
    done = trainmon("check", "--config", "c.toml", cwd=tmp_path, HOME=str(tmp_path), LC_ALL="C.UTF-8")
    assert done.returncode == 3
    at = done.stdout.index("    → if training has begun")
    assert done.stdout[at:].splitlines()[1:4] == [
        "      [[log_format]]",
        '      name = "own"',
        '      template = "{step} done, nll {loss}"',
    ]


def test_a_missing_config_says_what_writes_one(tmp_path: Path) -> None:
    done = trainmon("check", "--config", "c.toml", cwd=tmp_path, LC_ALL="C.UTF-8")
    assert done.returncode == 2
    assert done.stdout.splitlines() == [
        "✗ config       c.toml: the file does not exist",
        "    → trainmon-tui init --output c.toml",
    ]


def test_this_machine_is_well_and_plain_ascii_where_it_must_be(tmp_path: Path) -> None:
    done = trainmon("check", cwd=tmp_path, TRAINMON_CONFIG="", HOME=str(tmp_path), TRAINMON_ASCII="1")
    assert done.returncode == 0, done.stdout
    assert done.stdout.isascii()
    assert done.stdout.startswith("v config       no file: 1 cluster, 0 runs\n")
    assert done.stdout.endswith("no problems\n")


def test_headless_does_not_count_on_an_agent(tmp_path: Path) -> None:
    environ = {"TRAINMON_CONFIG": "", "HOME": str(tmp_path), "SSH_AUTH_SOCK": "/run/agent", "LC_ALL": "C.UTF-8"}
    done = trainmon("check", "--headless", cwd=tmp_path, **environ)
    assert "the SSH agent of this login session was not used, because the daemon will not have it" in done.stdout
    assert "    → give the daemon a key file without a passphrase: IdentityFile in ~/.ssh/config" in done.stdout


def test_no_table_is_reported_as_not_used(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(
        '[[notify]]\ntype = "ntfy"\ntopic = "hunter2"\n[[disk]]\npath = "/"\nlag = "30m"\n'
        '[[run]]\nname = "r"\nmodel_family = "reasoning"\n[[eval]]\nrun = "r"\nresults = "/fsx/evals/*.jsonl"\n'
    )
    done = trainmon("check", "--config", "c.toml", cwd=tmp_path, HOME=str(tmp_path), LC_ALL="C.UTF-8")
    assert "not used" not in done.stdout
    assert "/fsx/evals/*.jsonl" in done.stdout
    assert "the first evaluation creates it; else fix `results` of [[eval]]" in done.stdout
    assert "hunter2" not in done.stdout + done.stderr


def test_a_server_that_cannot_get_the_ledger_is_reported_without_its_password(
    tmp_path: Path,
) -> None:
    def checked(url: str) -> str:
        (tmp_path / "c.toml").write_text('[ledger]\ncopy_to = "env:COPY"\n')
        environ = {"HOME": str(tmp_path), "LC_ALL": "C.UTF-8", "COPY": url}
        done = trainmon("check", "--config", "c.toml", cwd=tmp_path, **environ)
        assert done.returncode == 3
        assert "hunter2" not in done.stdout + done.stderr
        return done.stdout

    row = '✗ ledger       copy_to      [ledger]: "copy_to"'
    assert f"{row} names the environment variable COPY, which is empty" in checked("")
    address = "must be an address such as postgresql://user:password@host/database"
    assert f"{row} {address}" in checked("mysql://me:hunter2@host")
    assert "✗ ledger       copy_to      OperationalError: " in checked("postgresql://me:hunter2@127.0.0.1:1/x")


def test_a_machine_without_an_ssh_command_is_reported(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to("/bin/sh")
    environ = {"TRAINMON_CONFIG": "", "HOME": str(tmp_path), "PATH": str(tmp_path / "bin"), "LC_ALL": "C.UTF-8"}
    done = trainmon("check", cwd=tmp_path, **environ)
    assert "◆ ssh          there is no ssh command here: paramiko reads the config, and ignores Include" in done.stdout
    assert "    → install OpenSSH's client" in done.stdout


def test_a_quota_is_queried_and_reported(tmp_path: Path) -> None:
    script = tmp_path / "lfs"
    script.write_text(f"#!/bin/sh\necho '{tmp_path} 5242880* 4194304 6291456 6d 12 0 100 -'\n")
    script.chmod(0o755)
    request = QuotaSettings(command=(str(script), "quota", "-q", "-u", "me"), parser="lustre")
    (rows,) = look(Settings(disks=(DiskSettings(path=str(tmp_path), quota=request),)))
    row = next(row for row in rows if row.what == f"quota {tmp_path}")
    assert (row.mark, row.text) == ("ok", "user me: 5.0 GiB used, limit 6.0 GiB; 12 files, limit 100")


def test_a_quota_command_that_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    request = QuotaSettings(command=("mmlsquota-of-nowhere", "-Y"), parser="gpfs")
    counted = QuotaSettings(command=("du", "-s", str(tmp_path)), parser="du", limit=10**12)
    disks = (DiskSettings(path=str(tmp_path), quota=request), DiskSettings(path="/", quota=counted))
    (rows,) = look(Settings(disks=disks))
    quotas = [row for row in rows if row.what.startswith("quota ")]
    assert [(row.mark, row.fix) for row in quotas] == [("bad", "set its absolute path"), ("note", "")]
    assert quotas[1].text == "not tested: du reads the whole tree; it runs in the background, every 6h at most"


def test_du_is_not_run_however_long_a_check_takes(sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collectors.quota.DU_AFTER", 0.0)
    ran, limit = tmp_path / "ran", QuotaSettings(command=("sleep", "3"), parser="quota")
    counted = QuotaSettings(command=("sh", "-c", f"echo > {ran}"), parser="du", limit=10**12)
    disks = tuple(DiskSettings(path=path, on="nodes", quota=one) for path, one in (("/", counted), ("/tmp", limit)))
    look(Settings(clusters=(cluster("n0"),), disks=disks), sshd.ssh_config(1))
    assert not ran.exists()


def test_a_quota_command_that_hangs_is_waited_for_on_one_host(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collectors.quota.TIME_LIMIT", 5.0)
    disk = DiskSettings(path="/", on="nodes", quota=QuotaSettings(command=("sleep", "1000"), parser="quota"))
    found = look(Settings(clusters=(cluster("n0", "n1"),), disks=(disk,)), sshd.ssh_config(2))
    quotas = [(row.mark, row.subject, row.text) for rows in found for row in rows if row.what == "quota /"]
    assert quotas == [
        ("bad", "n0", "n0: sleep did not end in 5s"),
        ("note", "n1", "not tested: sleep failed slowly on another host"),
    ]


def test_the_switches_of_the_trainer_are_compared_with_those_of_the_config(tmp_path: Path) -> None:
    for name, kill in (("same", "kill"), ("other", "elsewhere")):
        hooks = Hooks(
            kill=str(tmp_path / kill), save=str(tmp_path / "save"), status=str(tmp_path / f"{name}.status"), rank=0
        )
        hooks.close()
    (tmp_path / "text.status").write_text("step 7")
    runs = tuple(
        RunSettings(
            name=name,
            kill_switch=str(tmp_path / "kill"),
            save_switch=str(tmp_path / "save"),
            status=str(tmp_path / f"{name}.status"),
        )
        for name in ("same", "other", "text", "missing")
    )
    (rows,) = look(Settings(clusters=HERE.clusters, runs=runs))
    found = {(row.mark, row.what, row.text) for row in rows if "trainer" in row.text or "status" in row.text}
    assert found == {
        ("ok", f"{tmp_path}/same.status", "the trainer of same looks at the same switches"),
        ("bad", f"{tmp_path}/kill", f"the trainer of other does not look at it, but at {tmp_path}/elsewhere"),
        ("bad", f"{tmp_path}/text.status", "is no status file of trainmon_hooks"),
    }
