"""The login, as in OpenSSH: keys, then keyboard-interactive, then a password.

paramiko's own handler calls back on the transport's thread, can miss a fast reply, always signs before it knows that
a key is welcome, and asks for the service again before every attempt.

Each dial asks a question only once. A refused answer is not retried, because retries lock accounts. Without a person to
ask, no method is started that could send a push to a phone.
"""

from __future__ import annotations

import contextlib
import queue
import re
import shlex
import threading
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from paramiko import PKey, SSHException, common
from paramiko.message import Message

from trainmon.lib import HostUnreachable, LoginNeeded, LoginRefused, Seconds, clean
from trainmon.transport.shell import AskUser
from trainmon.transport.ssh.config import HostSettings, Trust
from trainmon.transport.ssh.keys import Identity, KeyRing, agent_keys, identities, key_type, rsa_bits, too_open
from trainmon.transport.ssh.transport import CERTIFICATE, Connection, packet

# ---- user authentication (RFC 4252 and 4256): one request and one reply at a time ------------------------------------

DENIAL = re.compile(r"pam_[a-z]|no active job|^\s*access denied", re.IGNORECASE)
"""Matches refusals by PAM (pam_slurm_adopt, pam_slurm), but not the banner of a site."""


class Denied(NamedTuple):
    """The request failed: the methods that may be tried next, and whether this step itself succeeded."""

    methods: tuple[str, ...]
    partial: bool


class AuthRequest(NamedTuple):
    """The server asks questions."""

    title: str
    instructions: str
    fields: tuple[tuple[str, bool], ...]


Reply = Literal["accepted", "key accepted", "password expired"] | Denied | AuthRequest
"""The login succeeded; the server would accept this public key; it requires a new password."""


class ConnectionLost(Exception):
    """The connection ended during the login."""


class NoReply(Exception):
    """The server did not answer in time."""


class UserAuth:
    """The client side of the login; replaces paramiko's AuthHandler."""

    def __init__(self, connection: Connection, user: str, trust: Trust) -> None:
        self._connection = connection
        self._trust = trust
        self._user = user
        self._method = "none"
        self._service_requested = False
        self._authenticated = False
        self.denial = ""
        """The line of the server's last message that says why it refused the user."""
        self._replies: queue.SimpleQueue[Reply | None] = queue.SimpleQueue()
        self._handler_table: dict[int, Callable[[Message], None]] = {
            common.MSG_SERVICE_ACCEPT: self._ignore,
            common.MSG_USERAUTH_BANNER: self._on_banner,
            common.MSG_USERAUTH_SUCCESS: self._on_success,
            common.MSG_USERAUTH_FAILURE: self._on_failure,
            common.MSG_USERAUTH_INFO_REQUEST: self._on_message_60,
        }
        connection.auth_handler = self  # type: ignore[assignment]

    # ---- requests, on the dialling thread ----------------------------------------------------------------------------

    def none(self, timeout: Seconds) -> Reply:
        """Ask which methods the server allows."""
        return self._request(timeout, "none")

    def offer_key(self, blob: bytes, timeout: Seconds) -> Reply:
        """Offer a public key without signing: `key accepted`, or Denied.

        Raises:
            SSHException: when the ssh config does not allow the key; so does `sign`.
        """
        return self._request(timeout, "publickey", False, self._algorithm(blob), blob)

    def sign(self, key: PKey, blob: bytes, timeout: Seconds) -> Reply:
        """Prove that we hold a key.

        Raises:
            SSHException: when an agent refuses to sign; ValueError or OSError when signing fails.
        """
        algorithm = self._algorithm(blob)
        session = Message()
        session.add_string(self._connection.session_id or b"")
        request = self._userauth_request("publickey", True, algorithm, blob)
        proof = session.asbytes() + request.asbytes()
        signature = key.sign_ssh_data(proof, algorithm.removesuffix(CERTIFICATE))
        return self._request(timeout, "publickey", True, algorithm, blob, bytes(signature))

    def interactive(self, timeout: Seconds) -> Reply:
        """Start keyboard-interactive: an AuthRequest, or its result."""
        return self._request(timeout, "keyboard-interactive", "", "")

    def answer(self, answers: tuple[str, ...], timeout: Seconds) -> Reply:
        return self._send(packet(common.cMSG_USERAUTH_INFO_RESPONSE, len(answers), *answers), timeout)

    def password(self, password: str, timeout: Seconds) -> Reply:
        return self._request(timeout, "password", False, password)

    def _request(self, timeout: Seconds, method: str, *fields: str | bytes | bool) -> Reply:
        if not self._service_requested:
            # Sent ahead of the first request without waiting: it saves a round trip for every host.
            self._service_requested = True
            self._connection.packetizer.send_message(packet(common.cMSG_SERVICE_REQUEST, "ssh-userauth"))
        self._method = method
        return self._send(self._userauth_request(method, *fields), timeout)

    def _userauth_request(self, method: str, *fields: str | bytes | bool) -> Message:
        return packet(common.cMSG_USERAUTH_REQUEST, self._user, "ssh-connection", method, *fields)

    def _send(self, message: Message, timeout: Seconds) -> Reply:
        if not self._connection.is_active():
            raise ConnectionLost
        try:
            self._connection.packetizer.send_message(message)
            reply = self._replies.get(timeout=timeout)
        except queue.Empty:
            raise NoReply from None
        except (OSError, EOFError):
            raise ConnectionLost from None
        if reply is None:
            raise ConnectionLost
        return reply

    def _algorithm(self, blob: bytes) -> str:
        kind, trust = key_type(blob), self._trust
        if (bits := rsa_bits(blob)) is not None and bits < trust.rsa_bits:
            raise SSHException(f"not used: it has {bits} bits, and RequiredRSASize is {trust.rsa_bits}")
        versions = ("rsa-sha2-512", "rsa-sha2-256") if kind.startswith("ssh-rsa") else (kind.removesuffix(CERTIFICATE),)
        suffix = CERTIFICATE if kind.endswith(CERTIFICATE) else ""
        allowed = [one for one in versions if trust.user_keys is None or one + suffix in trust.user_keys]
        if not allowed:
            raise SSHException(f"not used: PubkeyAcceptedAlgorithms does not allow {kind}")
        extension = self._connection.server_extensions.get("server-sig-algs", b"")  # type: ignore[attr-defined]
        offered = extension.decode("ascii", "replace") if isinstance(extension, bytes) else str(extension)
        names = offered.split(",")
        return next((one for one in allowed if one in names), allowed[0]) + suffix

    # ---- what paramiko calls, on the transport's thread --------------------------------------------------------------

    def is_authenticated(self) -> bool:
        return self._authenticated

    def abort(self) -> None:
        self._replies.put(None)

    def _ignore(self, message: Message) -> None:
        """The service is accepted: nothing to do."""

    def _on_banner(self, message: Message) -> None:
        """Text for the user: a site's notice before the login, or PAM's reason for a refusal after it."""
        self._note_denial(message.get_string().decode("utf-8", "replace"))

    def _note_denial(self, text: str) -> None:
        self.denial = next((line for line in reversed(text.splitlines()) if DENIAL.search(line)), self.denial)

    def _on_success(self, message: Message) -> None:
        self._authenticated = True
        self._connection._auth_trigger()  # type: ignore[attr-defined]
        self._replies.put("accepted")

    def _on_failure(self, message: Message) -> None:
        self._replies.put(Denied(tuple(message.get_list()), message.get_boolean()))

    def _on_message_60(self, message: Message) -> None:
        """Message 60 means something else in every method."""
        if self._method == "publickey":
            self._replies.put("key accepted")
        elif self._method == "password":
            self._replies.put("password expired")
        else:
            title, instructions = (message.get_string().decode("utf-8", "replace") for _ in range(2))
            self._note_denial(instructions)
            message.get_string()
            count = min(message.get_int(), 32)
            fields = [(message.get_string().decode("utf-8", "replace"), message.get_boolean()) for _ in range(count)]
            # With PAM, sshd puts what a module says before its question into the question: the menu of a second factor.
            said = "\n".join(text.rstrip("\n").rpartition("\n")[0] for text, _ in fields)
            asked = tuple((text.rstrip("\n").rpartition("\n")[2], echo) for text, echo in fields)
            self._replies.put(AuthRequest(title, f"{instructions}\n{said}".strip("\n"), asked))


# ---- the methods in their order --------------------------------------------------------------------------------------

ANSWER_TIMEOUT: Seconds = 120.0
"""The server's time to check an answer: a push waits on a phone."""

MAX_ROUNDS = 10
HEADLESS_HINT = "set up a key without a passphrase (IdentityFile), or an agent that is always running"


@contextlib.contextmanager
def released(slots: threading.Semaphore) -> Iterator[None]:
    """Give the slot for a handshake to another host while a person is asked."""
    slots.release()
    try:
        yield
    finally:
        slots.acquire()


class PromptBusy(Exception):
    """A prompt for another host is open. Waiting with an open connection would cost two threads a host, and sshd closes
    it after LoginGraceTime (120 s): the dial starts again when the prompt is answered."""

    def __init__(self, *, is_shared: bool) -> None:
        super().__init__("a prompt for another host is open")
        self.is_shared = is_shared
        """Whether the answer for the other host is likely to work here too: the passphrase of a key."""


class Prompter:
    """Prompts for a person, one host at a time."""

    def __init__(self, ask: AskUser | None) -> None:
        self._ask = ask
        self.lock = threading.RLock()
        """Held while a prompt is open. Never wait for it with an open connection."""

    def __bool__(self) -> bool:
        return self._ask is not None

    @contextlib.contextmanager
    def exclusive(self, *, is_shared: bool = False) -> Iterator[None]:
        """Hold the prompt.

        Raises:
            PromptBusy: while another host holds it.
        """
        if not self.lock.acquire(blocking=False):
            raise PromptBusy(is_shared=is_shared)
        try:
            yield
        finally:
            self.lock.release()

    def __call__(
        self,
        host: str,
        title: str,
        instructions: str,
        fields: tuple[tuple[str, bool], ...],
        is_open: Callable[[], bool] = lambda: True,
    ) -> tuple[str, ...] | None:
        """Ask the person. The texts come from servers: control characters are removed."""
        assert self._ask is not None
        shown = tuple((clean(text, 200), echo) for text, echo in fields)
        lines = "\n".join(clean(line, 500) for line in instructions.splitlines()[:100])
        with self.lock:
            answers = self._ask(host, clean(title, 200), lines, shown, is_open)
        return answers if answers is not None and len(answers) == len(fields) else None


class Login:
    """One attempt to log in on one fresh connection."""

    def __init__(
        self,
        connection: Connection,
        settings: HostSettings,
        key_ring: KeyRing,
        prompter: Prompter,
        slots: threading.Semaphore,
        dial_started_at: Seconds,
        timeout: Seconds,
    ) -> None:
        self._connection = connection
        self._settings = settings
        self._host = settings.name
        self._key_ring = key_ring
        self._prompter = prompter if not settings.batch else Prompter(None)
        self._slots = slots
        self._dial_started_at = dial_started_at
        self._timeout = timeout
        self._auth = UserAuth(connection, settings.user, settings.trust)
        self._methods: tuple[str, ...] | None = None
        self._tried: list[str] = []
        self._needs: list[str] = []
        self._done: set[str] = set()
        self._unused = [(path, why) for path in settings.identity_files if (why := too_open(path))]
        """Key files that are not offered, and why."""
        self.prompted = False

    def run(self) -> None:
        """Log in.

        Raises:
            LoginRefused: when the server refuses the keys or an answer.
            LoginNeeded: when a question was not answered.
            HostUnreachable: when the connection is lost, or the server does not answer.
        """
        try:
            with agent_keys(self._settings) as agent:
                waiting = identities(self._settings, agent) if "publickey" in self._settings.methods else []
                waiting.sort(key=self._needs_passphrase)
                while True:
                    if waiting and self._is_allowed("publickey"):
                        logged_in = self._try_key(waiting.pop(0))
                    elif self._needs and self._prompter:
                        raise self._refusal()  # a declined passphrase ends the login
                    elif self._methods is None:
                        logged_in = self._handle(self._auth.none(self._timeout))  # the reply lists the allowed methods
                    elif self._is_allowed("keyboard-interactive"):
                        logged_in = self._try_interactive()
                    elif self._is_allowed("password"):
                        logged_in = self._try_password()
                    else:
                        raise self._refusal()
                    if logged_in:
                        return
        except ConnectionLost:
            raise self._connection_lost() from None
        except NoReply:
            message = f"{self._host} did not answer the login in {self._timeout:g}s"
            raise HostUnreachable(self._host, message, hint=f"try: ssh {self._host}") from None

    def _is_allowed(self, method: str) -> bool:
        allowed = self._settings.methods if self._methods is None else self._settings.methods & {*self._methods}
        return method in allowed - self._done

    def _handle(self, reply: Reply) -> bool:
        if isinstance(reply, Denied):
            self._methods = reply.methods
            if reply.partial:
                self._done.discard("keyboard-interactive")  # the next step of several may be one again
        return reply == "accepted"

    # ---- keys --------------------------------------------------------------------------------------------------------

    def _try_key(self, identity: Identity) -> bool:
        self._tried.append(identity.label)
        try:
            return self._offer(identity)
        except (SSHException, OSError, ValueError) as error:
            self._tried[-1] += f" ({clean(str(error), 100)})"
            return False

    def _offer(self, identity: Identity) -> bool:
        key = self._unlocked_key(identity)
        if key is None or identity.agent_key is not None:
            # Offered before signing: a rejected key needs no passphrase and no touch of a token.
            if identity.blob is not None:
                reply = self._auth.offer_key(identity.blob, self._timeout)
                if reply != "key accepted":
                    return self._handle(reply)
            key = key or self._unlock(identity)
            if key is None:
                return False
        blob = identity.blob if identity.blob is not None else key.asbytes()
        return self._handle(self._auth.sign(key, blob, self._timeout))

    def _needs_passphrase(self, identity: Identity) -> bool:
        """Keys that need a passphrase come last: if another key works, nobody is asked."""
        return identity.file is not None and identity.file.encrypted and self._unlocked_key(identity) is None

    def _unlocked_key(self, identity: Identity) -> PKey | None:
        if identity.agent_key is not None:
            return identity.agent_key
        assert identity.file is not None
        try:
            return self._key_ring.ready(identity.file)
        except SSHException:
            return None

    def _unlock(self, identity: Identity) -> PKey | None:
        file = identity.file
        if file is None or not file.encrypted:
            self._tried[-1] += " (unknown key format)"
            return None
        key = None

        def ask(again: bool) -> str | None:
            title = f"Passphrase for {file.path}"
            note = "Wrong passphrase." if again else "It unlocks the key here, for all its hosts. It is not sent."
            answers = self._prompter(self._host, title, note, ((f"{title}: ", False),))
            return answers[0] if answers else None

        if self._prompter:
            with released(self._slots), self._prompter.exclusive(is_shared=True):
                key = self._key_ring.unlock(file, ask, self._dial_started_at)
        if key is None:
            self._needs.append(f"a passphrase for {file.path}")
        return key

    # ---- questions ---------------------------------------------------------------------------------------------------

    def _try_interactive(self) -> bool:
        self._done.add("keyboard-interactive")
        if not self._prompter:
            self._needs.append("a password or a second factor (keyboard-interactive)")
            return False
        prompted = False
        # Hold the prompt before the method starts: a push must not expire behind another host's prompt.
        with released(self._slots), self._prompter.exclusive():
            self.prompted = True  # from here on the server may send a push, with or without a question
            reply = self._auth.interactive(ANSWER_TIMEOUT)
            for _ in range(MAX_ROUNDS):
                if not isinstance(reply, AuthRequest):
                    break
                answers: tuple[str, ...] = ()
                if reply.fields:
                    prompted = True
                    answers = self._ask(reply.title or reply.fields[0][0], reply.instructions, *reply.fields)
                reply = self._auth.answer(answers, ANSWER_TIMEOUT)
        if self._handle(reply):
            return True
        self._tried.append("keyboard-interactive")
        if prompted and not (isinstance(reply, Denied) and reply.partial):
            message = f"{self._host}: the server refused the answer{self._server_message()}"
            raise LoginRefused(self._host, message, hint="check the answer, then log in again")
        return False

    def _try_password(self) -> bool:
        self._done.add("password")
        if not self._prompter:
            self._needs.append("a password")
            return False
        question = f"{self._settings.user}@{self._settings.hostname}'s password: "
        with released(self._slots), self._prompter.exclusive():
            self.prompted = True
            password = self._ask("Password", self._unused_keys, (question, False), what="a password")[0]
            reply = self._auth.password(password, ANSWER_TIMEOUT)
        if reply == "password expired":
            hint = f"change it: ssh {self._host}"
            raise LoginRefused(self._host, f"{self._host}: the password has expired", hint=hint)
        logged_in = self._handle(reply)
        if not logged_in and not (isinstance(reply, Denied) and reply.partial):
            hint = "check the password, then log in again"
            raise LoginRefused(self._host, f"{self._host}: the server refused the password", hint=hint)
        return logged_in

    def _ask(self, title: str, instructions: str, *fields: tuple[str, bool], what: str = "") -> tuple[str, ...]:
        answers = self._prompter(self._host, title, instructions, fields, self._connection.is_active)
        if not self._connection.is_active():
            raise ConnectionLost
        if answers is None:
            message = f"{self._host} asked for {clean(what or fields[0][0], 100).rstrip(': ')} and got no answer"
            raise LoginNeeded(self._host, message, hint="log in again")
        return answers

    # ---- ends --------------------------------------------------------------------------------------------------------

    def _refusal(self) -> HostUnreachable:
        unused = f"; {self._unused_keys}" if self._unused else ""
        if self._needs:
            need = f"{self._host} needs {' or '.join(dict.fromkeys(self._needs))}"
            if self._settings.batch:
                message = f"{need}, and BatchMode in its ssh config forbids prompts{unused}"
                return LoginRefused(self._host, message, hint=HEADLESS_HINT)
            if self._prompter:
                return LoginNeeded(self._host, f"{need}; no answer was given{unused}", hint="log in again")
            gssapi = "; it accepts Kerberos (gssapi)" if "gssapi-with-mic" in (self._methods or ()) else ""
            return LoginNeeded(self._host, f"{need}, and nobody can be asked{unused}{gssapi}", hint=HEADLESS_HINT)
        allowed = ", ".join(clean(method, 40) for method in self._methods or ()) or "nothing"
        tried = "; ".join(filter(None, (self._unused_keys, self._offered)))
        refused = f"{self._host} refuses the login of {self._settings.user}: {tried}; it allows {allowed}"
        paths = " ".join(shlex.quote(path) for path, _ in self._unused)
        hint = f"chmod 600 {paths}" if paths else f"try: ssh {self._host}"
        return LoginRefused(self._host, refused + self._server_message(), hint=hint)

    @property
    def _offered(self) -> str:
        """`tried ~/.ssh/id_rsa, agent key ana@laptop`."""
        nothing = "no other key" if self._unused else "no key (none was found)"
        return "tried " + (", ".join(clean(label, 200) for label in self._tried) or nothing)

    @property
    def _unused_keys(self) -> str:
        """`not used: ~/.ssh/id_rsa (its mode is 0644, so others may use it)`."""
        keys = ", ".join(f"{clean(path, 80)} ({why})" for path, why in self._unused)
        return f"not used: {keys}" if keys else ""

    def _server_message(self) -> str:
        """The server's message about its refusal; pam_slurm_adopt sends its own after it accepted the key."""
        reason = clean(self._auth.denial, 200)
        return f": {reason}" if reason else ""

    def _connection_lost(self) -> HostUnreachable:
        reason = clean(self._connection.disconnect_reason, 200)
        if "uthentication failures" in reason:
            hint = "too many keys were offered: set IdentitiesOnly and IdentityFile in ~/.ssh/config"
            return LoginRefused(self._host, f"{self._host}: {reason}; {self._offered}", hint=hint)
        if self.prompted and not self._auth.denial:
            message = f"{self._host} closed the connection while it waited for an answer"
            return LoginNeeded(self._host, message, hint="log in again; a server waits about two minutes for an answer")
        why = f": {reason}" if reason else self._server_message()
        return HostUnreachable(self._host, f"{self._host} closed the connection during the login{why}")
