"""A daemon without the libraries of side features: it starts, sends what it can, and says what is to be installed."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from tests.alerts.daemon import AlertDaemon
from tests.alerts.messages import TOPIC, received, until_told
from tests.lab.daemons import until
from tests.lab.ntfy_server import NtfyServer
from tests.lab.pip import add, plain
from tests.lab.webhook_receiver import WebhookReceiver

CONFIG = """\
[[run]]
name = "llm"
log = "{folder}/llm.log"
[[notify]]
type = "apprise"
name = "mail"
url = "json://127.0.0.1:{port}/hunter2"
[[notify]]
type = "ntfy"
name = "phone"
server = "{url}"
topic = "{topic}"
[heartbeat]
every = "1s"
"""


def test_a_plain_install_sends_by_its_other_channels_and_says_what_installs_the_rest(
    tmp_path: Path, ntfy: NtfyServer
) -> None:
    program = plain(tmp_path / "my env", "apprise", "matplotlib", "psycopg")
    python = Path(program).with_name("python")
    install = f"{sys.base_prefix}/bin/python3 -m pip --python '{python}' install 'trainmon-tui[{{}}]'"
    for_mail, for_plots = install.format("apprise"), install.format("plots")
    with WebhookReceiver.start() as hook, contextlib.closing(AlertDaemon(tmp_path, program=program)) as daemon:
        daemon.config.write_text(CONFIG.format(folder=tmp_path, url=ntfy.url, topic=TOPIC, port=hook.port))
        daemon.start()
        alert = until_told(ntfy, "WARNING channel-failing")
        assert f"the channel mail (apprise) cannot send: apprise is not installed ({for_mail})" in alert.message
        until_told(ntfy, "llm")

        with_copy = tmp_path / "copy.toml"
        with_copy.write_text(f'{daemon.config.read_text()}[ledger]\ncopy_to = "env:PG"\n')
        shown = daemon.run("check", f"--config={with_copy}", PG="postgresql://ann:hunter2@host/d").stdout
        problems = [" ".join(line.split()) for line in shown.replace("\n    →", " →").splitlines()]
        assert f"✗ channel mail apprise, json://***: apprise is not installed → {for_mail}" in problems
        assert f"◆ channel plots matplotlib is not installed: notifications have no plots → {for_plots}" in problems
        needs = '✗ ledger copy_to [ledger]: "copy_to" needs psycopg, which is not installed'
        assert f"{needs} → {install.format('postgresql')}" in problems

        until_told(ntfy, "llm", count=2)
        assert not [one.message for one in received(ntfy, "llm") if "matplotlib" in one.message]
        assert daemon.log.read_text().count(f"no plots: matplotlib is not installed ({for_plots})") == 1

        assert not hook.messages
        add(tmp_path / "my env", "apprise")
        until(lambda: hook.messages, "a message without a restart")
