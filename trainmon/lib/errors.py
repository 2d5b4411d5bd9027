"""The errors of this program. Each has a sentence for the operator and a hint: what to do next.

TrainmonError
├── ConfigError            the config cannot be used (exit 2)
├── HostUnreachable        no usable connection to a host
│   ├── HostKeyRefused     unknown, changed or revoked host key
│   ├── LoginRefused       every login method was refused
│   └── LoginNeeded        a person must answer a prompt
└── CommandFailed          a command could not be run, or exceeded its timeout
"""

from __future__ import annotations


class TrainmonError(Exception):
    """An error with a sentence for the operator, and a hint that says what to do."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class ConfigError(TrainmonError):
    """Mistakes in the config, one sentence each."""

    def __init__(self, problems: list[str], *, hint: str = "") -> None:
        super().__init__("\n".join(problems), hint=hint)
        self.problems = problems


class HostUnreachable(TrainmonError):
    """No usable connection to a host."""

    def __init__(self, host: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.host = host
        self.prompted = False
        """Whether a prompt may have been shown or pushed. If so, there is no automatic retry."""
        self.accepted = False
        """Whether the host accepted the connection, and then did not finish the login."""
        self.waits_for_person = False
        """Whether no login is tried before a person has opened a master connection of `ssh`, or has a Kerberos ticket:
        then a refusal does not end the retries."""

    @property
    def can_log_in(self) -> bool:
        """Whether a person can log in by answering a prompt."""
        return self.prompted


class HostKeyRefused(HostUnreachable):
    """The host's key is unknown, changed or revoked. It is never accepted silently."""


class LoginRefused(HostUnreachable):
    """Every login method was refused. There is no automatic retry: repeated refusals lock accounts."""


class LoginNeeded(HostUnreachable):
    """A person must answer a prompt. There is no automatic retry: it would send one push after another."""

    @property
    def can_log_in(self) -> bool:
        return True


class CommandFailed(TrainmonError):
    """A command could not be run, or exceeded its timeout."""
