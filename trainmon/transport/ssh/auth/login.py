"""Logging in as OpenSSH does: keys, then keyboard-interactive, then a password, asking a person only where one is.

Nobody is asked twice in a dial, a refused answer is not followed by another try (that is how accounts get locked), and
without somebody to ask, nothing is even started that could send a push to a phone.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from paramiko import PKey, SSHException

from trainmon.lib import HostUnreachable, LoginNeeded, LoginRefused, Seconds, clean
from trainmon.transport.ssh.auth.keys import Identity, KeyRing, agent_keys, identities
from trainmon.transport.ssh.auth.protocol import (
    Accepted,
    AuthRequest,
    ConnectionGone,
    Denied,
    NoReply,
    PasswordExpired,
    Reply,
    UserAuth,
)
from trainmon.transport.ssh.config import HostSettings
from trainmon.transport.ssh.transport import Connection

Ask = Callable[[str, str, str, tuple[tuple[str, bool], ...]], tuple[str, ...] | None]
"""ask(host, title, instructions, ((text, echo), …)) → the answers, or None when declined. Blocks."""

ANSWER_PATIENCE: Seconds = 120.0
"""For a server to judge an answer: a push waits on a phone."""

ROUNDS = 10
HEADLESS_HINT = "set up a key without a passphrase for it (IdentityFile), or an agent that is always there"
GONE_HINT = "log in again; a server waits about two minutes for an answer"


class Slot:
    """A place among the handshakes under way, given up while a person is being asked."""

    def __init__(self, places: threading.Semaphore, since: Seconds) -> None:
        self._places = places
        self.since = since
        """When the dial began that waits for it."""

    def __enter__(self) -> Slot:
        self._places.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._places.release()

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        self._places.release()
        try:
            yield
        finally:
            self._places.acquire()


class OutOfTurn(Exception):
    """Another host is being asked. To wait with an open connection would cost two threads a host, and the server cuts
    it off (sshd's LoginGraceTime is 120 s): the dial begins again when it is its turn."""

    def __init__(self, *, is_shared: bool) -> None:
        super().__init__("another host is being asked")
        self.is_shared = is_shared
        """Whether the answer given to the other host is likely to do here, too: the passphrase of a key."""


class Asker:
    """The one who can be asked, one host at a time."""

    def __init__(self, ask: Ask | None) -> None:
        self._ask = ask
        self._turn = threading.RLock()

    def __bool__(self) -> bool:
        return self._ask is not None

    @contextlib.contextmanager
    def turn(self, *, is_shared: bool = False) -> Iterator[None]:
        """The right to ask now; raises OutOfTurn while another host is asked."""
        if not self._turn.acquire(blocking=False):
            raise OutOfTurn(is_shared=is_shared)
        try:
            yield
        finally:
            self._turn.release()

    @contextlib.contextmanager
    def waited_turn(self) -> Iterator[None]:
        """The right to ask, when it comes; not to be waited for with an open connection."""
        with self._turn:
            yield

    def __call__(
        self, host: str, title: str, instructions: str, fields: tuple[tuple[str, bool], ...]
    ) -> tuple[str, ...] | None:
        """Servers write the texts: only what can be shown of them is shown."""
        if self._ask is None:
            return None
        shown = tuple((clean(text, 200), echo) for text, echo in fields)
        lines = "\n".join(clean(line, 200) for line in instructions.splitlines()[:20])
        with self._turn:
            answers = self._ask(host, clean(title, 200), lines, shown)
        return answers if answers is not None and len(answers) == len(fields) else None


class Login:
    """One attempt to log in on one fresh connection."""

    def __init__(
        self,
        connection: Connection,
        settings: HostSettings,
        ring: KeyRing,
        asker: Asker,
        slot: Slot,
        timeout: Seconds,
    ) -> None:
        self._connection = connection
        self._settings = settings
        self._host = settings.name
        self._ring = ring
        self._asker = asker if not settings.batch else Asker(None)
        self._slot = slot
        self._timeout = timeout
        self._talk = UserAuth(connection, settings.user)
        self._methods: tuple[str, ...] | None = None
        self._tried: list[str] = []
        self._needs: list[str] = []
        self._done: set[str] = set()
        self.prompted = False

    def run(self) -> None:
        """Log in, or raise LoginRefused, LoginNeeded or HostUnreachable."""
        try:
            with agent_keys(self._settings) as agent:
                waiting = identities(self._settings, agent) if "publickey" in self._settings.methods else []
                waiting.sort(key=self._would_ask)
                while True:
                    if waiting and self._may("publickey"):
                        logged_in = self._offer(waiting.pop(0))
                    elif self._needs and self._asker:
                        raise self._refusal()  # a declined passphrase is not followed by the next question
                    elif self._methods is None:
                        logged_in = self._take(self._talk.none(self._timeout))  # the answer tells what is allowed
                    elif self._may("keyboard-interactive"):
                        logged_in = self._interact()
                    elif self._may("password"):
                        logged_in = self._give_password()
                    else:
                        raise self._refusal()
                    if logged_in:
                        return
        except ConnectionGone:
            raise self._gone() from None
        except NoReply:
            raise HostUnreachable(
                self._host,
                f"{self._host}: no answer to the login in {self._timeout:g} s",
                hint=f"try: ssh {self._host}",
            ) from None

    def _may(self, method: str) -> bool:
        allowed = self._methods is None or method in self._methods
        return allowed and method in self._settings.methods and method not in self._done

    def _take(self, reply: Reply) -> bool:
        if isinstance(reply, Denied):
            self._methods = reply.methods
            if reply.partial:
                self._done.discard("keyboard-interactive")  # the next step of several may be one again
        return isinstance(reply, Accepted)

    # ---- keys --------------------------------------------------------------------------------------------------------

    def _offer(self, identity: Identity) -> bool:
        self._tried.append(identity.label)
        key = self._key_at_hand(identity)
        if key is None or identity.agent_key is not None:
            # Asked before signing: a passphrase, or a touch of a token, is not wanted for a key that would not do.
            if identity.blob is not None:
                reply = self._talk.would_do(identity.blob, self._timeout)
                if isinstance(reply, Denied | Accepted):
                    return self._take(reply)
            key = key or self._unlocked(identity)
            if key is None:
                return False
        blob = identity.blob if identity.blob is not None else key.asbytes()
        try:
            return self._take(self._talk.sign_with(key, blob, self._timeout))
        except (SSHException, OSError, ValueError) as error:
            self._tried[-1] += f" ({clean(str(error), 100)})"
            return False

    def _would_ask(self, identity: Identity) -> bool:
        """Keys that need a question come last: where another key does, nobody is asked."""
        return identity.file is not None and identity.file.encrypted and self._key_at_hand(identity) is None

    def _key_at_hand(self, identity: Identity) -> PKey | None:
        if identity.agent_key is not None:
            return identity.agent_key
        assert identity.file is not None
        try:
            return self._ring.ready(identity.file)
        except SSHException:
            return None

    def _unlocked(self, identity: Identity) -> PKey | None:
        file = identity.file
        if file is None or not file.encrypted:
            self._tried[-1] += " (a format that is not known here)"
            return None
        if not self._asker:
            self._needs.append(f"a passphrase for {file.path}")
            return None

        def ask(again: bool) -> str | None:
            title = f"Passphrase for {file.path}"
            note = "That was not it." if again else "Asked once for all hosts that use this key."
            answers = self._asker(self._host, title, note, ((f"Passphrase for {file.path}: ", False),))
            return answers[0] if answers else None

        with self._slot.aside(), self._asker.turn(is_shared=True):
            key = self._ring.unlock(file, ask, self._slot.since)
        if key is None:
            self._needs.append(f"a passphrase for {file.path}")
        return key

    # ---- questions ---------------------------------------------------------------------------------------------------

    def _interact(self) -> bool:
        self._done.add("keyboard-interactive")
        if not self._asker:
            self._needs.append("keyboard-interactive (a password or a second factor)")
            return False
        asked = False
        # The turn is taken before the server is asked to begin: a push must not expire behind another host's question.
        with self._slot.aside(), self._asker.turn():
            self.prompted = True  # from here on a phone may ring, with or without a question of the server's
            reply = self._talk.interactive(ANSWER_PATIENCE)
            for _ in range(ROUNDS):
                if not isinstance(reply, AuthRequest):
                    break
                asked = asked or bool(reply.fields)
                reply = self._talk.answer(self._answers(reply), ANSWER_PATIENCE)
        if self._take(reply):
            return True
        self._tried.append("keyboard-interactive")
        if asked and not (isinstance(reply, Denied) and reply.partial):
            words = f"{self._host}: the answer was refused{self._said()}"
            raise LoginRefused(self._host, words, hint="log in again when sure")
        return False

    def _answers(self, asked: AuthRequest) -> tuple[str, ...]:
        if not asked.fields:
            return ()
        title = asked.title or asked.fields[0][0]
        answers = self._asker(self._host, title, asked.instructions, asked.fields)
        if answers is None:
            raise self._declined(asked.fields[0][0])
        return answers

    def _give_password(self) -> bool:
        self._done.add("password")
        if not self._asker:
            self._needs.append("a password")
            return False
        question = f"{self._settings.user}@{self._settings.hostname}'s password: "
        with self._slot.aside(), self._asker.turn():
            answers = self._asker(self._host, "Password", "", ((question, False),))
            if answers is None:
                raise self._declined("a password")
            self.prompted = True
            reply = self._talk.password(answers[0], ANSWER_PATIENCE)
        if isinstance(reply, PasswordExpired):
            raise LoginRefused(
                self._host, f"{self._host}: the password has expired", hint=f"change it: ssh {self._host}"
            )
        if self._take(reply):
            return True
        if not (isinstance(reply, Denied) and reply.partial):
            raise LoginRefused(self._host, f"{self._host}: the password was refused", hint="log in again when sure")
        return False

    # ---- ends --------------------------------------------------------------------------------------------------------

    def _declined(self, what: str) -> LoginNeeded:
        asked = clean(what, 100).rstrip(": ")
        return LoginNeeded(self._host, f"{self._host} asked for {asked}, which was not given", hint="log in again")

    def _refusal(self) -> HostUnreachable:
        if self._needs:
            wanted = " or ".join(dict.fromkeys(self._needs))
            if not self._asker:
                return LoginNeeded(self._host, f"{self._host} wants {wanted}, and nobody is asked", hint=HEADLESS_HINT)
            return LoginNeeded(self._host, f"{self._host} wants {wanted}, which was not given", hint="log in again")
        tried = ", ".join(clean(label, 80) for label in self._tried) or "no key: there is none"
        allowed = ", ".join(clean(method, 40) for method in self._methods or ()) or "nothing"
        words = f"{self._host} refuses {self._settings.user}: tried {tried}; it allows {allowed}"
        return LoginRefused(self._host, words + self._said(), hint=f"try: ssh {self._host}")

    def _said(self) -> str:
        """The server's own words on its refusal; pam_slurm_adopt's are sent after the key was accepted."""
        said = clean(self._talk.denial, 200)
        return f": {said}" if said else ""

    def _gone(self) -> HostUnreachable:
        said = clean(self._connection.goodbye, 200)
        if "uthentication failures" in said:
            hint = "too many keys were offered: set IdentitiesOnly and IdentityFile for it in ~/.ssh/config"
            return LoginRefused(self._host, f"{self._host}: {said}", hint=hint)
        if self.prompted and not self._talk.denial:
            return LoginNeeded(self._host, f"{self._host} closed the login while it waited", hint=GONE_HINT)
        why = f": {said}" if said else self._said()
        return HostUnreachable(self._host, f"{self._host} closed the connection during the login{why}")
