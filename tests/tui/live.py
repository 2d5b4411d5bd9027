"""A hand-made State on the terminal this is started in: `python -m tests.tui.live [STATE] [--hang]`."""

from __future__ import annotations

import argparse
import logging
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from tests.tui.backend import FakeBackend
from tests.tui.states.plans import STATES, planned
from tests.tui.states.wandb_runs import filled
from trainmon.model import Action, Milestone, Record, State
from tui.app import Dashboard


class Stage(FakeBackend):
    """Answers with the real plans, and plays that what is agreed to is done."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.plan = planned(state)
        self.curves = filled(state).curves
        self.ssh = {node: ("ssh", "-F", "a file; echo no", "--", node) for node in state.nodes}

    def act(self, actions: Sequence[Action]) -> None:
        super().act(actions)
        for action in actions:
            self.tell(Record(action=action))
            done = Record(action=action, status="done", done_at=action.requested_at, outcome="",
                          marks=(Milestone("the file appears", action.requested_at + 2.0),))  # fmt: skip
            later = threading.Timer(0.5, partial(self.tell, done))
            later.daemon = True
            later.start()

    def save_samples(self, run: str, directory: str, reply: Callable[[str], object]) -> None:
        super().save_samples(run, directory, reply)
        later = threading.Timer(2.0, reply, (f"nothing is fetched into {directory}: this is a play",))
        later.daemon = True
        later.start()

    def tell(self, record: Record) -> None:
        assert self.state is not None
        self.publish(replace(self.state, actions={**self.state.actions, record.action.id: record}))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("state", nargs="?", default="troubled", choices=STATES)
    parser.add_argument("--hang", action="store_true", help="a daemon thread that never ends, as a hung host's would")
    parser.add_argument("--break-on", metavar="KEY", help="a key that raises in the app itself")
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if args.hang:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    app = Dashboard(Stage(STATES[args.state]()))
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
