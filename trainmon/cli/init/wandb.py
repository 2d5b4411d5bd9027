"""What `init` asks W&B: whose key lies on this machine, so that the runs can name their project."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NamedTuple

from collectors.wandb.child_process import ChildClient, WandbClient, WandbError
from collectors.wandb.login import Credentials, find_credentials
from collectors.wandb.wire import ReadViewer, Viewer


class Account(NamedTuple):
    """A W&B login of this machine; what its server did not say is None."""

    server: str
    place: str
    user: str | None = None
    entity: str | None = None
    teams: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """`W&B: the key in ~/.netrc is ana's on wandb.ai; teams: vision, speech`."""
        whose = f"is {self.user}'s on" if self.user else "is for"
        teams = [team for team in self.teams if team != self.user]
        return f"W&B: the key in {self.place} {whose} {self.server}" + (f"; teams: {', '.join(teams)}" if teams else "")


def look(
    login: Callable[[], Credentials] = find_credentials,
    client: Callable[[], WandbClient] = ChildClient,
) -> Account | None:
    """The account; None where there is no key, and nothing is started then."""
    found = login()
    if found.location is None:
        return None
    account = Account(found.server, found.location)
    try:
        with contextlib.closing(client()) as asking:
            told = asking.ask(ReadViewer(id=0), Viewer)
    except WandbError:
        return account  # `check` says what is wrong
    return account._replace(user=told.user, entity=told.entity, teams=told.teams)
