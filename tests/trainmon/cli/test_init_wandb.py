"""init, where there is a W&B login: whose it is, and how a run names its project."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from collectors.wandb.child_process import ChildClient
from collectors.wandb.login import find_credentials
from tests.lab.wandb_child import environ_of
from tests.lab.wandb_server import WandbServer
from trainmon.cli.init import Account, FoundFacts, SlurmReport, config_text, query_wandb
from trainmon.config import load as config
from trainmon.model import Job

JOB = Job(id="88", number=88, cluster="", name="llm", user="ana", state="RUNNING", nodes=("n1",), batch=True)


def test_the_account_of_the_key_is_requested(tmp_path: Path) -> None:
    with WandbServer.start() as server:
        environ = environ_of(server, tmp_path)
        account = query_wandb(partial(find_credentials, environ), partial(ChildClient, environ))
        host = server.url.removeprefix("http://")
        assert account == Account(host, "WANDB_API_KEY", "tester", "tester", ("tester",))
        server.answer_with(401)
        account = query_wandb(partial(find_credentials, environ), partial(ChildClient, environ))
    assert account == Account(host, "WANDB_API_KEY")


def test_without_a_key_nothing_is_queried(tmp_path: Path) -> None:
    assert query_wandb(partial(find_credentials, {"HOME": str(tmp_path)}), lambda: 1 / 0) is None  # type: ignore[arg-type, return-value]


def test_a_run_names_a_project_of_the_account(tmp_path: Path) -> None:
    account = Account("wandb.ai", "~/.netrc", "ana", "vision", ("ana", "vision"))
    written = config_text("main", "login1", [], FoundFacts(SlurmReport("ana", "23.02", (), (JOB,)), account))
    assert "# W&B: the key in ~/.netrc is ana's on wandb.ai; teams: vision\n" in written
    assert '[[run]]\nname = "llm"  ' in written
    file = tmp_path / "t.toml"
    file.write_text(re.sub(r"(?m)^# (?=wandb = |group = )", "", written.partition("# A training run.")[0]))
    (run,) = config.load(file).runs
    assert (run.wandb, run.group) == ("vision/project", "llm")


def test_a_strange_account_ends_no_comment() -> None:
    account = Account("wandb.ai", "~/.netrc", 'a"\n[daemon]', 'x"\n[daemon]', ("b\n[daemon]",))
    written = config_text("main", None, ["n1"], FoundFacts(account=account))
    assert "\n[daemon]" not in written
    assert '# wandb = "team/project"' in written
