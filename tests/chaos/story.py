"""One ledger, many lives: faults come and go, receivers fail, programs are killed; at the end all is counted."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from tests.chaos.life import Spec
from tests.lab.ntfy_server import NtfyServer
from tests.lab.receiver import CUT, DIE, HANG, WELL, Answer, Request, status
from tests.lab.smtp import MailServer
from tests.lab.webhook_receiver import WebhookReceiver

ROOT = Path(__file__).parents[2]
USUAL_POINTS = 120
"""Between finding something and the last mark, when all goes well: 110 to 150 were counted."""
QUIET = 0.06
QUIET_CHILDREN = 0.8
BAD: tuple[Answer, ...] = (HANG, CUT, DIE, status(500), status(503), status(429, retry_after="0"))


class Counted:
    """What a receiver answered, and what it took: a sender is not told of what was taken by one that dies."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.answered: Counter[str] = Counter()
        self.got: list[tuple[Request, bool]] = []
        """And whether it could say so."""
        self._present = threading.local()

    def next_answer(self) -> tuple[Answer, Any]:
        answer, let_go = super().next_answer()  # type: ignore[misc]
        self.answered[answer.how] += 1
        self._present.how = answer.how
        return answer, let_go

    def take(self, request: Request) -> Answer:
        self.got.append((request, self._present.how != "die"))
        answer: Answer = super().take(request)  # type: ignore[misc]
        return answer


def same(request: Request) -> str:
    """What two requests have in common that tell the same: the key that a receiver is given, else all of it."""
    return request.headers.get("idempotency-key") or request.body.decode()


class Topic(Counted, NtfyServer):
    """An ntfy server that counts."""


class Hook(Counted, WebhookReceiver):
    """A webhook receiver that counts."""


@dataclass
class Outcome:
    """What a story came to."""

    kills: int = 0
    points: Counter[str] = field(default_factory=Counter)
    """How many were killed where."""
    answers: Counter[str] = field(default_factory=Counter)
    notices: int = 0
    deliveries: int = 0
    lost: list[str] = field(default_factory=list)
    copies: Counter[str] = field(default_factory=Counter)
    """By channel: messages that came again after a crash."""
    most_copies_a_crash: int = 0
    """Of messages by one channel, how many a crash left without their mark, and so to come again."""


class ForkServer:
    """The process that lives are forked from."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.fork_server"],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def live(self, spec: Spec) -> str:
        """Where it was killed; "ended", if it was not."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(msgspec.json.encode(spec).decode(), file=self._process.stdin, flush=True)
        text = ""
        while not (line := self._process.stdout.readline()).startswith("over"):
            assert line, "the nursery is gone"
            text = line.strip()
        code = int(line.split()[1])
        assert code in (-9, 0), f"a life ended with {code} after {text}"
        return text.removeprefix("killed ") if code else "ended"

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


class Story:
    """See above."""

    def __init__(
        self, directory: Path, seed: int, topic: Topic, hook: Hook, mail: MailServer | None, fallback: Hook | None
    ) -> None:
        self.rng = random.Random(seed)
        self.topic, self.hook, self.mail, self.fallback = topic, hook, mail, fallback
        self.is_topic_down = False
        self.ledger = directory / "state" / "ledger.sqlite"
        self.faults = directory / "faults"
        self.diary = directory / "diary"
        self.faults.write_text("")
        self.outcome = Outcome()
        self.nursery = ForkServer()
        self._bad = cycle(BAD)
        self._names: list[str] = []
        self._active: list[str] = []
        self._came: dict[str, list[int]] = {}
        """By channel, how many messages had come at the end of each life."""
        self.spec = Spec(
            directory=str(self.ledger.parent),
            faults=str(self.faults),
            diary=str(self.diary),
            ntfy=topic.url,
            webhook=f"{hook.url}/hook",
            mail=mail.url if mail else None,
            fallback=f"{fallback.url}/fallback" if fallback else None,
        )

    def lose_lives(self, kills: int, **changes: Any) -> None:
        """Lives that are killed, each with something new to tell."""
        for _ in range(kills):
            self._something_happens()
            self._receivers_fail()
            from_detection = self.rng.random() < 0.85
            kill_at = self.rng.randint(1, USUAL_POINTS)
            place = self._live(replace(self.spec, kill_at=kill_at, from_detection=from_detection, **changes))
            self.outcome.kills += 1
            self.outcome.points[place] += 1

    def lose_lives_in_an_outage(self, kills: int) -> None:
        """A minute lies between two lives, and the ntfy server is down in most of them."""
        for number in range(kills):
            self.is_topic_down = number % 5 != 4
            self.spec = replace(self.spec, shift=self.spec.shift + 60.0)
            self.lose_lives(1)

    def lose_lives_beside(self, primary: Answer, every: float, within: float) -> float | None:
        """A program that is killed again and again while its webhook always answers so. How long after the message was
        first due, by the ledger, the fallback had it; None if it had not within this time. A life is short: the clock
        is set forward between two, as if each lasted `every` seconds."""
        assert self.fallback is not None
        self._active = self._names = ["f00001"]  # critical
        self.faults.write_text("f00001")
        self.hook.always(primary)
        waited = 0.0
        while not self.fallback.taken:
            if waited > within:
                return None
            self._live(replace(self.spec, kill_at=0))
            self.spec = replace(self.spec, shift=self.spec.shift + every)
            waited += every
        ((due,),) = self.rows("SELECT min(made_at) FROM outbox")
        return self.fallback.taken[0].at + self.spec.shift - every - float(due)

    def lose_lives_in_pairs(self, kills: int) -> None:
        """Two programs on one ledger: where the one that tells is killed, the other takes over, and is killed too."""
        lock, other = threading.Lock(), ForkServer()

        def lives(nursery: ForkServer) -> None:
            for _ in range(kills // 2):
                with lock:
                    self._something_happens()
                    self._receivers_fail()
                    after = self.rng.uniform(2.0, 3.0)  # a stand-by asks for the duty every 2 s
                    spec = replace(self.spec, seconds=after, kill_at=self.rng.randint(1, USUAL_POINTS))
                place = nursery.live(spec)
                with lock:
                    self.outcome.kills += 1
                    self.outcome.points[place] += 1

        second = threading.Thread(target=lives, args=(other,))
        second.start()
        lives(self.nursery)
        second.join(60)
        other.close()

    def changed(self, **facts: Any) -> Spec:
        """Lives that are otherwise."""
        return replace(self.spec, **facts)

    def end(self) -> Outcome:
        """The last life is a good one; then all is counted."""
        for receiver in self._receivers:
            receiver.well()
        if self.mail is not None:
            self.mail.always("")
        for _ in range(20):
            self._live(replace(self.spec, ends_well=True, seconds=2.0))
            if (
                not self.rows("SELECT 1 FROM outbox WHERE state IN ('waiting', 'leased', 'dead')")
                and self._has_told_all()
            ):
                break
        self._count()
        return self.outcome

    def _live(self, spec: Spec) -> str:
        place = self.nursery.live(spec)
        self._let_all_come()
        for channel, result in self._tellings().items():
            self._came.setdefault(channel, []).append(len(result))
        return place

    def _let_all_come(self) -> None:
        """What was on its way when its sender was killed is of that life; a child that sends may outlive its parent."""
        quiet, known, quiet_since = QUIET if self.mail is None else QUIET_CHILDREN, -1, time.monotonic()
        while time.monotonic() - quiet_since < quiet:
            mails = self.mail.messages if self.mail is not None else ()
            came = sum(len(receiver.requests) for receiver in self._receivers) + len(mails)
            if came != known:
                known, quiet_since = came, time.monotonic()
            time.sleep(0.01)

    def _something_happens(self) -> None:
        if self._active and self.rng.random() < 0.3:
            self._active.remove(self.rng.choice(self._active))
        for _ in range(self.rng.choice((1, 1, 1, 2, 3))):
            number = len(self._names)
            is_mailed = self.mail is not None and number % 10 == 0
            name = f"{'m' if is_mailed else 'f'}{number:05d}"
            self._names.append(name)
            self._active.append(name)
        self.faults.write_text(" ".join(self._active[-30:]))
        self._active = self._active[-30:]

    @property
    def _receivers(self) -> tuple[Topic | Hook, ...]:
        return (self.topic, self.hook) if self.fallback is None else (self.topic, self.hook, self.fallback)

    def _receivers_fail(self) -> None:
        for receiver in self._receivers:
            receiver.well()
            first = WELL if self.rng.random() < 0.5 else next(self._bad)  # each in turn, however few requests come
            receiver.script(first, *self.rng.choices((WELL, *BAD), weights=(8, *([1] * len(BAD))), k=12))
        if self.is_topic_down:
            self.topic.well()
            self.topic.always(status(503))
        if self.mail is not None:
            self.mail.always(self.rng.choice(("", "", "", "451 later", "cut")))

    # ---- what came

    def _tellings(self) -> dict[str, list[tuple[frozenset[str], bool]]]:
        """By channel, what each message that came told, and whether its sender could know that it came. By its notices
        where they can be known, else as a whole."""
        lines = (line.split() for line in self.diary.read_text().splitlines()) if self.diary.exists() else ()
        inside = {key: frozenset(notices) for key, *notices in lines}
        mails = self.mail.messages if self.mail is not None else []
        fallback = self.fallback.got if self.fallback is not None else []
        return {
            "fallback": [(inside[same(request)], was_said) for request, was_said in fallback],
            "ntfy": [(frozenset([same(request)]), was_said) for request, was_said in self.topic.got],
            "webhook": [(inside[same(request)], was_said) for request, was_said in self.hook.got],
            "mail": [(frozenset([one.as_string()]), True) for one in mails],
        }

    def _count_copies(self) -> None:
        """A message is a copy that tells again what its channel took before, and could say so. To blame is the crash
        of the life in which it took it: what it took was not marked. What was one message may come again as two."""
        for channel, result in self._tellings().items():
            taken_as: dict[str, int] = {}
            blamed: dict[int, set[int]] = {}
            for number, (message, was_said) in enumerate(result):
                before = {taken_as[key] for key in message if key in taken_as}
                for earlier in before:
                    blamed.setdefault(bisect_right(self._came[channel], earlier), set()).add(earlier)
                self.outcome.copies[channel] += bool(before)
                taken_as = {key: known for key, known in taken_as.items() if key not in message}
                taken_as |= dict.fromkeys(message, number) if was_said else {}
            self.outcome.most_copies_a_crash = max(self.outcome.most_copies_a_crash, *map(len, blamed.values()), 0)

    def _texts(self) -> dict[str, str]:
        fallback = self.fallback.taken if self.fallback is not None else []
        return {
            "fallback": "\n".join(request.body.decode() for request in fallback),
            "ntfy": "\n".join(f"{one.title}\n{one.message}\n{one.attachment.decode()}" for one in self.topic.messages),
            "webhook": "\n".join(request.body.decode() for request in self.hook.taken),
            "mail": "\n".join(f"{one['Subject']}\n{one}" for one in self.mail.messages) if self.mail else "",
        }

    def _has_told_all(self) -> bool:
        texts = self._texts()
        return all(name in texts["webhook"] for name in self._active)

    def _count(self) -> None:
        """Lost is what fired, by the history of alerts, and came to nobody, also if it is in no outbox; what is in the
        outbox and came to nobody; and what was given up; not what the fallback need not send any more, as the others
        did."""
        self._count_copies()
        texts, outcome = self._texts(), self.outcome
        rows = self.rows(
            "SELECT outbox.channel, outbox.state, notices.key, notices.notice FROM outbox JOIN notices USING (key)"
        )
        for channel, state, key, notice in rows:
            is_needless = channel == "fallback" and state == "stopped"
            for alert in () if is_needless else msgspec.json.decode(notice)["alerts"]:
                if state not in ("sent", "merged") or alert["run"] not in texts[channel]:
                    outcome.lost.append(f"{key} by {channel}: {state}")
        fired = "SELECT DISTINCT run FROM alert_history JOIN alerts ON id = alert_id WHERE what = 'fired' AND run != ''"
        for name in {*self._active, *(name for (name,) in self.rows(fired))}:
            wanted = ["ntfy", "webhook", *(["mail"] if name.startswith("m") else [])]
            outcome.lost += [f"{name} by {channel}: never" for channel in wanted if name not in texts[channel]]
        outcome.deliveries = len(rows)
        outcome.notices = len({key for _, _, key, _ in rows})
        outcome.answers = self.topic.answered + self.hook.answered

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(self.ledger)
        try:
            return connection.execute(query).fetchall()
        finally:
            connection.close()


@contextmanager
def story(directory: Path, seed: int, *, mail: bool = False, fallback: bool = False) -> Iterator[Story]:
    """With its receivers running."""
    with ExitStack() as stack:
        topic: Topic = stack.enter_context(Topic.start())
        hook: Hook = stack.enter_context(Hook.start())
        mails = stack.enter_context(MailServer.start()) if mail else None
        spare: Hook | None = stack.enter_context(Hook.start()) if fallback else None
        made = Story(directory, seed, topic, hook, mails, spare)
        stack.callback(made.nursery.close)
        yield made
