"""Every mistake in a config has one sentence, word for word: file, table, setting, and the nearest valid one."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmon.config import load as config
from trainmon.lib import ConfigError


def problems(folder: Path, text: str) -> list[str]:
    file = folder / "trainmon.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        config.load(file)
    return [problem.replace(str(file), "trainmon.toml") for problem in caught.value.problems]


RUN = '[[run]]\nname = "video-2b"\n'

ONE_MISTAKE = {
    "metrics-without-an-address": (
        '[cluster]\nname = "a"\nmetrics = { exporter = "dcgm" }\n',
        '[cluster] (a): metrics: "url" is missing',
    ),
    "metrics-that-are-no-table": (
        '[cluster]\nname = "a"\nmetrics = "http://prom:9090"\n',
        '[cluster] (a): "metrics" must be a table, { url = … }, not "http://prom:9090"',
    ),
    "metrics-of-an-unknown-exporter": (
        '[[cluster]]\nname = "a"\nmetrics = [{ url = "http://p", exporter = "nodes" }]\n',
        '[[cluster]] #1 (a): metrics #1: "exporter" must be "dcgm", "nvidia_gpu", "all-smi", "amd", "amd_smi" '
        'or "node", not "nodes"',
    ),
    "metrics-with-a-password-in-the-address": (
        '[cluster]\nname = "a"\nmetrics = { url = "http://me:secret@prom" }\n',
        '[cluster] (a): metrics: "url" must have no user, password or "?"; set "user" and "password" beside it',
    ),
    "metrics-with-half-a-login": (
        '[cluster]\nname = "a"\nmetrics = { url = "http://p", user = "me" }\n',
        '[[cluster]] #1 (a): metrics #1 ("dcgm"): "password" is missing: "user" and "password" go together',
    ),
    "metrics-with-two-logins": (
        '[cluster]\nname = "a"\n'
        'metrics = { url = "http://p", token = "env:T", headers = { authorization = "env:H" } }\n',
        '[[cluster]] #1 (a): metrics #1 ("dcgm"): "headers" has authorization, which the login sets',
    ),
    "metrics-with-a-query-instead-of-matchers": (
        """[cluster]\nname = "a"\nmetrics = { url = "http://p", match = 'up{cluster="a"}' }\n""",
        """[cluster] (a): metrics: "match" must be label matchers such as 'cluster="a"', not "up{cluster="a"}\"""",
    ),
    "metrics-that-are-polled-too-often": (
        '[cluster]\nname = "a"\nmetrics = { url = "http://p", every = "100ms" }\n',
        '[cluster] (a): metrics: "every" must be "1s" or more, not "100ms": Prometheus has no newer numbers',
    ),
    "two-exporters-of-gpus": (
        '[cluster]\nname = "a"\nmetrics = [{ url = "http://p" }, { url = "http://p", exporter = "all-smi" }]\n',
        '[[cluster]] #1 (a): metrics #2 ("all-smi") and #1 both read GPUs; remove one of them',
    ),
    "files-of-w-and-b-that-are-no-path": (
        '[[run]]\nname = "r"\nwandb_dir = "wandb"\n',
        '[[run]] #1 (r): "wandb_dir" must be an absolute path such as "/fsx/video", not "wandb"',
    ),
    "unknown-setting": (
        f'[[run]]\nname = "a"\n{RUN}chekpoints = "/fsx"\n',
        '[[run]] #2 (video-2b): unknown setting "chekpoints"; did you mean "checkpoints"?',
    ),
    "unknown-setting-like-no-other": (
        "[wandb]\nzzz = 1\n",
        '[wandb]: unknown setting "zzz"; the settings are every',
    ),
    "unknown-table": ('[[runs]]\nname = "a"\n', 'unknown setting "runs"; did you mean "run"?'),
    "unknown-setting-in-a-plain-table": (
        '[heartbeat]\nevry = "4h"\n',
        '[heartbeat]: unknown setting "evry"; did you mean "every"?',
    ),
    "unknown-cause-of-retries": (
        "[retry]\ncuda-om = 1\n",
        '[retry]: unknown setting "cuda-om"; did you mean "cuda-oom"?',
    ),
    "retries-that-are-no-number": (
        '[retry]\ncuda-oom = "two"\n',
        '[retry]: "cuda-oom" must be a number of retries or a table, not "two"',
    ),
    "retries-after-an-unknown-change": (
        '[retry]\ncuda-oom = { times = 1, after_change = ["batsch"] }\n',
        '[retry]: "cuda-oom" has "batsch" in after_change; it must be one of: batch, checkpointing, placement',
    ),
    "retries-with-an-unknown-setting": (
        "[retry]\nhang = { tims = 1 }\n",
        '[retry]: "hang" has the unknown setting "tims"; did you mean "times"?',
    ),
    "retries-without-their-number": (
        '[retry]\nhang = { within = "1d" }\n',
        '[retry]: "hang" needs the number of retries: times = 1',
    ),
    "unknown-setting-in-an-inner-table": (
        '[cluster]\nname = "prod"\nconnect = { timout = "10s" }\n',
        '[cluster] (prod): unknown setting "connect.timout"; did you mean "connect.timeout"?',
    ),
    "metrics-at-no-address": (
        '[daemon]\nmetrics = "yes"\n',
        '[daemon]: "metrics" must be a port such as 9464, or an IP address and a port such as "127.0.0.1:9464" or '
        '"[::1]:9464", not "yes"',
    ),
    "metrics-at-a-name": (
        '[daemon]\nmetrics = "gpu-001:9464"\n',
        '[daemon]: "metrics" must be a port such as 9464, or an IP address and a port such as "127.0.0.1:9464" or '
        '"[::1]:9464", not "gpu-001:9464"',
    ),
    "metrics-at-a-port-that-is-none": (
        "[daemon]\nmetrics = 65536\n",
        '[daemon]: "metrics" must be a port such as 9464, or an IP address and a port such as "127.0.0.1:9464" or '
        '"[::1]:9464", not the number 65536',
    ),
    "textfile-that-nobody-reads": (
        '[daemon]\ntextfile = "/var/lib/node_exporter/trainmon.txt"\n',
        '[daemon]: "textfile" must end in ".prom", not "/var/lib/node_exporter/trainmon.txt": node_exporter reads no '
        "other files",
    ),
    "missing-setting": ('[[run]]\nlog = "/l"\n', '[[run]] #1: "name" is missing'),
    "text-for-a-number": (
        f'{RUN}target_step = "many"\n',
        '[[run]] #1 (video-2b): "target_step" must be a whole number, not "many"',
    ),
    "number-for-a-text": ("[[run]]\nname = 7\n", '[[run]] #1: "name" must be a string in quotes, not the number 7'),
    "fraction-for-a-whole-number": (
        "[cluster]\nspares = 1.5\n",
        '[cluster]: "spares" must be a whole number, not the number 1.5',
    ),
    "true-for-a-number": ("[cluster]\nspares = true\n", '[cluster]: "spares" must be a whole number, not true'),
    "too-small-a-number": (
        "[cluster]\nconnect = { at_once = 0 }\n",
        '[cluster]: "connect.at_once" must be 1 or more, not 0',
    ),
    "text-for-true": ('read_only = "yes"\n', '"read_only" must be true or false, not "yes"'),
    "number-for-a-table": ("[[cluster]]\nconnect = 3\n", '[[cluster]] #1: "connect" must be a table, not the number 3'),
    "text-for-a-list-of-tables": ('run = "a"\n', '"run" must be a table, [[run]], not "a"'),
    "empty-name": ('[[run]]\nname = " "\n', '[[run]] #1 ( ): "name" must not be empty'),
    "control-characters": (
        '[[run]]\nname = "a\\u001b[2J"\n',
        '[[run]] #1 (a?[2J): "name" must not contain control characters: "a?[2J"',
    ),
    "bare-number-for-a-duration": (
        '[[cluster]]\nname = "prod"\nevery = 2\n',
        '[[cluster]] #1 (prod): "every" needs a unit: "2s" or "2m", not the bare number 2',
    ),
    "bad-duration": (
        f'{RUN}stall_after = "15 minutes"\n',
        '[[run]] #1 (video-2b): "stall_after" must be a duration such as "2s", "15m" or "1h30m", not "15 minutes"',
    ),
    "no-duration-at-all": (
        '[cluster]\nevery = "0s"\n',
        '[cluster]: "every" must be between "100ms" and a hundred years, not "0s"',
    ),
    "a-queue-asked-too-often": (
        '[cluster]\nslurm_every = "5s"\n',
        '[cluster]: "slurm_every" must be "15s" or more, not "5s": '
        "each query loads the Slurm controller of the whole site",
    ),
    "user-that-is-an-option": (
        '[cluster]\nusers = ["me", "--clear"]\n',
        '[cluster]: "users" has "--clear", which is not a user name',
    ),
    "two-users-in-one": (
        '[cluster]\nusers = ["ana,bob"]\n',
        '[cluster]: "users" has "ana,bob", which is not a user name',
    ),
    "user-of-a-run-that-is-none": (
        f'{RUN}user = "ana,bob"\n',
        '[[run]] #1 (video-2b): "user" must be a user name, not "ana,bob"',
    ),
    "job-of-two-runs": (
        f'{RUN}job = "train"\n[[run]]\nname = "other"\njob = "train"\n',
        '[[run]] #2 (other): jobs named "train" already belong to [[run]] #1 (video-2b)',
    ),
    "job-called-as-another-run": (
        f'{RUN}[[run]]\nname = "other"\njob = "video-2b"\n',
        '[[run]] #2 (other): jobs named "video-2b" already belong to [[run]] #1 (video-2b)',
    ),
    "bad-host-list": (
        '[[cluster]]\nname = "prod"\nnodes = ["gpu-[001-"]\n',
        '[[cluster]] #1 (prod): "nodes" has an invalid host list "gpu-[001-" (missing bracket): '
        'write it like "gpu-[001-032]"',
    ),
    "host-list-as-text": (
        '[cluster]\nnodes = "gpu-[001-032]"\n',
        '[cluster]: "nodes" must be "slurm" or a list of Slurm host lists such as ["gpu-[001-032]"], '
        'not "gpu-[001-032]"',
    ),
    "host-list-of-a-whole-planet": (
        '[cluster]\nnodes = ["gpu-[0-99999999]"]\n',
        '[cluster]: "nodes" has an invalid host list "gpu-[0-99999999]": the maximum is 20000 hosts',
    ),
    "login-that-is-an-option": (
        '[cluster]\nlogin = "-oProxyCommand=id"\n',
        '[cluster]: "login" must be one host name for ssh, such as "login1", not "-oProxyCommand=id"',
    ),
    "relative-path": (
        f'{RUN}log = "logs/*.out"\n',
        '[[run]] #1 (video-2b): "log" must be an absolute path such as "/fsx/video", not "logs/*.out"',
    ),
    "bad-choice": (
        '[[disk]]\npath = "/fsx"\non = "head"\n',
        '[[disk]] #1 (/fsx): "on" must be "login", "nodes" or "run", not "head"',
    ),
    "bad-share": (
        '[[disk]]\npath = "/fsx"\nusable = 80\n',
        '[[disk]] #1 (/fsx): "usable" must be a share such as "80%", not the number 80',
    ),
    "share-of-more-than-all": (
        '[[disk]]\npath = "/fsx"\nusable = "120%"\n',
        '[[disk]] #1 (/fsx): "usable" must be more than "0%" and at most "100%", not "120%"',
    ),
    "bad-labels": (
        f"{RUN}labels = {{ owner = 1 }}\n",
        '[[run]] #1 (video-2b): "labels" must be a table of strings such as { owner = "team-a" }',
    ),
    "bad-list": (
        '[cluster]\nusers = ["me", 3]\n',
        '[cluster]: "users" must contain only strings, not the number 3',
    ),
    "empty-command": (
        '[[disk]]\npath = "/fsx"\nquota = { command = [], parser = "lustre" }\n',
        '[[disk]] #1 (/fsx): "quota.command" must name a command',
    ),
    "du-without-a-limit": (
        '[[disk]]\npath = "/fsx"\nquota = { command = ["du", "-s", "/fsx/me"], parser = "du" }\n',
        '[[disk]] #1 (/fsx): "quota.limit" is missing: du prints no limit; set limit = "10TB"',
    ),
    "bad-quota-limit": (
        '[[disk]]\npath = "/fsx"\nquota = { command = ["lfs"], parser = "lustre", limit = 10 }\n',
        '[[disk]] #1 (/fsx): "quota.limit" must be a size such as "50GB" or "1.5TiB", not the number 10',
    ),
    "secret-that-is-no-text": (
        '[[notify]]\ntype = "ntfy"\ntopic = 31337\n',
        '[[notify]] #1 (ntfy): "topic" must be "env:NAME", "file:/path" or a string in quotes',
    ),
    "secret-from-a-bad-name": (
        '[[notify]]\ntype = "ntfy"\ntopic = "env:hunter-2"\n',
        '[[notify]] #1 (ntfy): "topic" must name a variable after "env:", such as "env:NTFY_TOPIC"',
    ),
    "secret-under-an-unknown-setting": (
        '[[notify]]\ntype = "desktop"\nsecret = "hunter2"\n',
        '[[notify]] #1 (desktop): unknown setting "secret"; the settings are '
        "type, name, severity, after, runs, rules, resolved, heartbeat, fallback, per_day",
    ),
    "run-name-twice": (
        f"{RUN}{RUN}",
        '[[run]] #2 (video-2b): the name "video-2b" is already used by [[run]] #1',
    ),
    "cluster-name-twice": (
        '[[cluster]]\nname = "p"\nnodes = ["a"]\n[[cluster]]\nname = "p"\nnodes = ["b"]\n',
        '[[cluster]] #2 (p): the name "p" is already used by [[cluster]] #1',
    ),
    "nodes-in-two-clusters": (
        '[[cluster]]\nname = "p"\nnodes = ["n[1-9]"]\n[[cluster]]\nname = "q"\nnodes = ["n[1-5]"]\n',
        '[[cluster]] #2 (q): nodes "n1", "n2", "n3" and 2 more are already listed in [[cluster]] #1 (p)',
    ),
    "one-login-of-two-clusters": (
        '[[cluster]]\nname = "p"\nlogin = "l"\nnodes = ["a"]\n[[cluster]]\nname = "q"\nlogin = "l"\nnodes = ["b"]\n',
        '[[cluster]] #2 (q): node "l" is already listed in [[cluster]] #1 (p)',
    ),
    "two-clusters-whose-files-are-read-here": (
        '[[disk]]\npath = "/fsx"\n[[cluster]]\nname = "p"\nnodes = ["a"]\n[[cluster]]\nname = "q"\nnodes = ["b"]\n',
        '[[cluster]] #2 (q): set "login", because this machine is already listed in [[cluster]] #1 (p)',
    ),
    "unknown-cluster": (
        f'[cluster]\nname = "prod"\n{RUN}cluster = "prd"\n',
        '[[run]] #1 (video-2b): unknown cluster "prd"; did you mean "prod"?',
    ),
    "which-of-several-clusters": (
        f'[[cluster]]\nname = "p"\nnodes = ["a"]\n[[cluster]]\nname = "q"\nnodes = ["b"]\n{RUN}',
        '[[run]] #1 (video-2b): "cluster" is missing; it must be one of: p, q',
    ),
    "run-on-a-node-that-is-not-there": (
        f'[cluster]\nname = "p"\nnodes = ["gpu-[001-002]"]\n{RUN}nodes = ["gpu-003"]\n',
        '[[run]] #1 (video-2b): "nodes" has "gpu-003", which is not a node of cluster "p"; did you mean "gpu-002"?',
    ),
    "disk-twice": (
        '[[disk]]\npath = "/fsx"\n[[disk]]\npath = "/fsx"\non = "login"\n',
        "[[disk]] #2 (/fsx): it has the same path on the same hosts as [[disk]] #1",
    ),
    "no-clusters": ("cluster = []\n", '"cluster" is empty; remove it to watch this machine'),
    "eval-of-an-unknown-run": (
        f'{RUN}[[eval]]\nrun = "video"\nresults = "/r"\n',
        '[[eval]] #1 (video): unknown run "video"; did you mean "video-2b"?',
    ),
    "eval-command-with-an-unknown-placeholder": (
        f'{RUN}[[eval]]\nrun = "video-2b"\nresults = "/r"\ncommand = "sbatch eval.sh {{chekpoint}}"\n',
        '[[eval]] #1 (video-2b): "command" has the unknown placeholder "{chekpoint}"; it must be one '
        "of: {checkpoint}, {step}, {run}",
    ),
    "eval-command-with-an-open-quote": (
        f'{RUN}[[eval]]\nrun = "video-2b"\nresults = "/r"\ncommand = "sbatch \'eval.sh"\n',
        '[[eval]] #1 (video-2b): "command" cannot be split into arguments: no closing quotation',
    ),
    "eval-command-without-a-command": (
        f'{RUN}[[eval]]\nrun = "video-2b"\nresults = "/r"\ncommand = ""\n',
        '[[eval]] #1 (video-2b): "command" must name a command',
    ),
    "bad-regular-expression": (
        '[[log_format]]\nname = "mine"\npattern = "step (?P<step"\n',
        '[[log_format]] #1 (mine): "pattern" is not a regular expression: missing >, unterminated name at position 9',
    ),
    "log-format-without-a-step": (
        '[[log_format]]\nname = "mine"\npattern = "loss (?P<loss>\\\\S+)"\n',
        "[[log_format]] #1 (mine): the expression has no group (?P<step>…), so it would never advance",
    ),
    "log-format-without-anything": (
        '[[log_format]]\nname = "mine"\n',
        "[[log_format]] #1 (mine): it needs either a template or a pattern",
    ),
    "template-without-a-step": (
        '[[log_format]]\nname = "mine"\ntemplate = "loss {loss}"\n',
        "[[log_format]] #1 (mine): the template has no {step}, so it would never advance",
    ),
    "template-with-an-unknown-name": (
        '[[log_format]]\nname = "mine"\ntemplate = "step {step} loss {los}"\n',
        "[[log_format]] #1 (mine): no group 'los'; did you mean 'loss'?",
    ),
    "template-with-a-name-twice": (
        '[[log_format]]\nname = "mine"\ntemplate = "step {step} of {step}"\n',
        "[[log_format]] #1 (mine): {step} stands twice in the template",
    ),
    "unfinished-toml": ("every = 5\nname =", "line 2, the end: Invalid value"),
    "broken-toml": ("[[run]\n", "line 1, column 6: Expected ']]' at the end of an array declaration"),
}


@pytest.mark.parametrize(("text", "problem"), ONE_MISTAKE.values(), ids=ONE_MISTAKE.keys())
def test_a_mistake_has_its_own_sentence(tmp_path: Path, text: str, problem: str) -> None:
    assert problems(tmp_path, text) == [f"trainmon.toml: {problem}"]


def test_every_mistake_is_reported_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    assert problems(tmp_path, f'{RUN}stall_after = 5\nlogg = "/l"\n[daemon]\nhost = 3\n[legder]\n') == [
        'trainmon.toml: [[run]] #1 (video-2b): "stall_after" needs a unit: "5s" or "5m", not the bare number 5',
        'trainmon.toml: [[run]] #1 (video-2b): unknown setting "logg"; did you mean "log"?',
        'trainmon.toml: [daemon]: "host" must be a string in quotes, not the number 3',
        'trainmon.toml: unknown setting "legder"; did you mean "ledger"?',
    ]


def test_an_unknown_setting_does_not_hide_a_name_that_is_taken(tmp_path: Path) -> None:
    assert problems(tmp_path, f"{RUN}logg = 1\n{RUN}") == [
        'trainmon.toml: [[run]] #1 (video-2b): unknown setting "logg"; did you mean "log"?',
        'trainmon.toml: [[run]] #2 (video-2b): the name "video-2b" is already used by [[run]] #1',
    ]


def test_a_literal_secret_is_in_no_message(tmp_path: Path) -> None:
    text = '[[notify]]\ntype = "ntfy"\ntopic = "env:tk_hunter2!"\nurl = "https://u:hunter2@x"\ntoken = "hunter2"\n'
    topic, url = problems(tmp_path, text)
    assert '"topic" must name a variable after "env:"' in topic
    assert 'unknown setting "url"' in url
    assert "hunter2" not in topic + url


def test_a_missing_file_says_what_writes_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        config.load(tmp_path / "no.toml")
    file = tmp_path / "no.toml"
    assert str(caught.value) == f"{file}: the file does not exist (trainmon-tui init --output {file})"


def test_a_directory_is_no_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        config.load(tmp_path)
    assert str(caught.value) == f"{tmp_path}: cannot be read: is a directory"


def test_a_file_of_another_encoding_names_the_line(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_bytes(b"read_only = true\n# caf\xe9\n")
    with pytest.raises(ConfigError) as caught:
        config.load(file)
    assert str(caught.value) == f"{file}: line 2: is not UTF-8 text"


def test_a_huge_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_bytes(b"#" * 2_000_000)
    with pytest.raises(ConfigError) as caught:
        config.load(file)
    assert str(caught.value) == f"{file}: is too large for a config: the maximum is 1 MiB"


def test_a_bad_value_does_not_hide_that_two_tables_disagree(tmp_path: Path) -> None:
    text = f'[cluster]\nevery = "2x"\n{RUN}{RUN}'
    assert problems(tmp_path, text) == [
        'trainmon.toml: [cluster]: "every" must be a duration such as "2s", "15m" or "1h30m", not "2x"',
        'trainmon.toml: [[run]] #2 (video-2b): the name "video-2b" is already used by [[run]] #1',
    ]
