"""A hand-made State on the terminal this is started in: `python -m tests.tui.live [STATE] [--hang]`."""

from __future__ import annotations

import argparse
import logging
import sys
import threading

from tests.tui.backend import FakeBackend
from tests.tui.states import STATES
from tui.app import Dashboard


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("state", nargs="?", default="troubled", choices=STATES)
    parser.add_argument("--hang", action="store_true", help="a daemon thread that never ends, as a hung host's would")
    parser.add_argument("--break-on", metavar="KEY", help="a key that raises in the app itself")
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if args.hang:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    app = Dashboard(FakeBackend(STATES[args.state]()))
    if args.break_on:
        app.bind(args.break_on, "break_now")
        app.action_break_now = _break  # type: ignore[attr-defined]
    app.run()
    return app.return_code or 0


def _break() -> None:
    answer = "secret-" + "in-a-local"
    message = f"broken on purpose, knowing {len(answer)} characters"
    raise RuntimeError(message)


if __name__ == "__main__":
    sys.exit(main())
