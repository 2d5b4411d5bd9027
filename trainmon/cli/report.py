"""The command report: where the GPU hours of a period went, how often attempts fail, and what that costs."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Mapping
from pathlib import Path

import click

from trainmon.analysis.explanation import Grouping, report, report_object, report_page, report_sentence
from trainmon.cli.attempts import did_you_mean, markdown, page_width, silent_lines, text_lines
from trainmon.cli.terminal import plain, print_json, print_lines
from trainmon.config import load_settings
from trainmon.ledger.attempts import timestamp
from trainmon.ledger.ledger import attempt_history
from trainmon.ledger.reader import leader_now
from trainmon.lib import ConfigError, find_state_directory
from trainmon.runtime.logs import log_to_file


def print_report(
    run: str | None, since: float, group: Grouping | None, as_json: bool, as_markdown: bool, config: Path | None
) -> int:
    """Print the report of the last `since` seconds; the exit status."""
    if as_json and as_markdown:
        raise click.UsageError("--json and --markdown exclude each other")
    log_to_file()
    gc.disable()  # all is kept until the end: 50,000 attempts would be looked through again and again
    directory, now = find_state_directory(os.environ).path, time.time()
    attempts = attempt_history(directory)
    known = dict.fromkeys(one.run_id for one in attempts)
    if run is not None and run not in known:
        click.echo(plain(f"the ledger has no attempt of {run}{did_you_mean(run, known)}"), err=True)
        return 2
    for line in silent_lines(leader_now(directory, now), run, now):
        click.echo(plain(line), err=True)
    found = report(attempts, now - since, now, prices(config), run=run, group=group)
    if as_json:
        period = {"since": timestamp(found.since), "until": timestamp(found.until)}
        print_json({**period, **report_object(found)})
    elif as_markdown:
        first, last = ((timestamp(at) or "")[:10] for at in (found.since, found.until))
        title = f"Reliability of {run or 'all runs'}, {first} to {last}"
        print_lines(*markdown(title, report_sentence(found), report_page(found)))
    else:
        print_lines(*text_lines(report_sentence(found), report_page(found), page_width()))
    return 0


def prices(config: Path | None) -> Mapping[str, float | None]:
    """The prices of a GPU hour in the config, by cluster; none without a config that can be read.

    Raises:
        ConfigError: the given file cannot be used.
    """
    try:
        return load_settings(config, ())[0].prices
    except ConfigError:
        if config is not None:
            raise
        return {}
