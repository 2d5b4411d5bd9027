"""Where a key for W&B is looked for, beside what W&B's own client finds in the same places."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from collectors.wandb.login import Credentials, find_credentials

KEY = "local-" + "0123456789" * 4


def login(home: Path, **environ: str) -> Credentials:
    return find_credentials({"HOME": str(home), **environ}, home / "work")


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_nothing_is_found_in_an_empty_home(tmp_path: Path) -> None:
    found = login(tmp_path)
    assert (found.location, found.error) == (None, "there is no key for wandb.ai")
    assert found.hint == "log in with `wandb login`, or set WANDB_API_KEY"


def test_the_environment_goes_first(tmp_path: Path) -> None:
    write(tmp_path / ".netrc", f"machine api.wandb.ai login user password {KEY}\n")
    assert login(tmp_path, WANDB_API_KEY=KEY).location == "WANDB_API_KEY"


def test_a_key_with_a_lines_end_is_reported_before_the_client_refuses_it(tmp_path: Path) -> None:
    found = login(tmp_path, WANDB_API_KEY=KEY + "\n")
    assert (found.location, found.error) == (None, "WANDB_API_KEY begins or ends with a space or a line break")


def test_an_address_without_a_scheme_is_none(tmp_path: Path) -> None:
    found = login(tmp_path, WANDB_API_KEY=KEY, WANDB_BASE_URL="wandb.corp.example:8080")
    assert (found.location, found.error) == (None, "wandb.corp.example:8080 is not the address of a W&B server")


def test_two_ways_at_once_are_none(tmp_path: Path) -> None:
    found = login(tmp_path, WANDB_API_KEY=KEY, WANDB_IDENTITY_TOKEN_FILE="/t")
    assert (found.location, found.error) == (None, "WANDB_API_KEY and WANDB_IDENTITY_TOKEN_FILE are both set")


def test_an_identity_token_must_be_there(tmp_path: Path) -> None:
    token = tmp_path / "token"
    assert login(tmp_path, WANDB_IDENTITY_TOKEN_FILE=str(token)).location is None
    token.write_text("a.b.c")
    assert login(tmp_path, WANDB_IDENTITY_TOKEN_FILE=str(token)).location is not None


@pytest.mark.parametrize("host", ["api.wandb.ai", "api.forge.coreweave.com"])
def test_a_netrc_has_the_key_of_the_cloud_under_either_name(tmp_path: Path, host: str) -> None:
    write(tmp_path / ".netrc", f"machine {host}\n  login user\n  password {KEY}\n")
    assert login(tmp_path).location == "~/.netrc"
    assert login(tmp_path, WANDB_BASE_URL="https://wandb.corp.example").location is None


def test_a_netrc_has_the_key_of_a_server_of_ones_own(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", f"machine wandb.corp.example:8080 login user password {KEY}\n")
    found = login(tmp_path, WANDB_BASE_URL="http://wandb.corp.example:8080/", NETRC="~/elsewhere")
    assert (found.location, found.server) == ("~/elsewhere", "wandb.corp.example:8080")
    assert login(tmp_path, WANDB_BASE_URL="http://wandb.corp.example", NETRC="~/elsewhere").location is None


def test_a_netrc_that_cannot_be_read_is_reported_without_its_words(tmp_path: Path) -> None:
    write(tmp_path / ".netrc", f"{KEY} machine\n")
    found = login(tmp_path)
    assert found.error == f"{tmp_path}/.netrc cannot be read: syntax error in line 1"
    assert KEY not in str(found)


def test_the_settings_name_the_server_and_those_of_the_directory_go_first(tmp_path: Path) -> None:
    write(tmp_path / ".config/wandb/settings", f"[default]\nbase_url = https://global.example/\napi_key = {KEY}\n")
    assert (login(tmp_path).url, login(tmp_path).location) == ("https://global.example", "~/.config/wandb/settings")
    write(tmp_path / "work/wandb/settings", "[default]\nbase_url = https://local.example\n")
    assert login(tmp_path).url == "https://local.example"
    assert login(tmp_path, WANDB_BASE_URL="https://env.example").url == "https://env.example"
    write(tmp_path / "other/settings", "[default]\n")
    assert login(tmp_path, WANDB_CONFIG_DIR=str(tmp_path / "other")).location is None


def test_a_settings_file_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    write(tmp_path / ".config/wandb/settings", "base_url = https://nowhere.example\n")
    assert login(tmp_path).server == "wandb.ai"


def test_a_working_directory_that_is_gone_hides_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / ".netrc", f"machine api.wandb.ai login user password {KEY}\n")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert find_credentials({"HOME": str(tmp_path)}).location == "~/.netrc"


WHAT_THE_CLIENT_FINDS = """
import json, os, sys
from wandb.sdk import wandb_setup
from wandb.sdk.lib import wbauth
for home in sys.argv[1:]:
    if os.fork() == 0:  # imported once, and for each home as if it were new
        os.environ["HOME"] = home
        os.chdir(home + "/work")
        url = wandb_setup.singleton().settings.base_url
        auth = wbauth.authenticate_session(host=url, source="a test", prompt=False, update_session=False)
        print(json.dumps([os.path.basename(home), url, auth is not None]), flush=True)
        os._exit(0)
    os.wait()
"""

HOMES = {
    "nothing": ("work/empty", ""),
    "netrc": (".netrc", f"machine api.wandb.ai login user password {KEY}\n"),
    "default": (".netrc", f"default login user password {KEY}\n"),
    "other": (".netrc", f"machine elsewhere.example login user password {KEY}\n"),
    "forge": (".netrc", f"machine api.forge.coreweave.com login user password {KEY}\n"),
    "settings": (".config/wandb/settings", f"[default]\nbase_url = https://w.example\napi_key = {KEY}\n"),
    "directory": ("work/wandb/settings", f"[default]\nbase_url = https://w.example/\napi_key = {KEY}\n"),
    "hidden": ("work/.wandb/settings", f"[default]\napi_key = {KEY}\n"),
}


def test_the_client_finds_the_same(tmp_path: Path) -> None:
    """The real client, in a process of its own with the same homes."""
    for name, (file, text) in HOMES.items():
        write(tmp_path / name / file, text)
        (tmp_path / name / "work").mkdir(exist_ok=True)
    result = subprocess.run(
        [sys.executable, "-P", "-c", WHAT_THE_CLIENT_FINDS, *(str(tmp_path / name) for name in HOMES)],
        env={"PATH": os.environ["PATH"], "WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false"},
        capture_output=True,
        timeout=60,
        check=True,
    )
    theirs = {}
    for line in filter(lambda line: line.startswith(b"["), result.stdout.splitlines()):
        name, url, has_key = json.loads(line)
        theirs[name] = (Credentials(url, None).server, has_key)
    ours = {name: login(tmp_path / name) for name in HOMES}
    assert {name: (found.server, found.location is not None) for name, found in ours.items()} == theirs
