"""The family of errors. Each carries a sentence for the operator and a hint: what to do next.

TrainmonError
├── ConfigError            the config cannot be used (exit 2)
├── HostUnreachable        no usable connection to a host
│   ├── HostKeyRefused     unknown, changed or revoked host key
│   ├── LoginRefused       every way to log in was refused
│   └── LoginNeeded        a person must answer a prompt, and nobody was asked
└── CommandFailed          a command could not be run, or exceeded its timeout
"""

from __future__ import annotations


class TrainmonError(Exception):
    """A sentence for the operator, and a hint that says what to do."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class ConfigError(TrainmonError):
    """One or several mistakes in the config, a sentence each."""

    def __init__(self, problems: list[str], *, hint: str = "") -> None:
        super().__init__("\n".join(problems), hint=hint)
        self.problems = problems


class HostUnreachable(TrainmonError):
    """No usable connection to a host."""

    def __init__(self, host: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.host = host
        self.prompted = False
        """Whether somebody may have been asked on the way (a modal, a push): it is then not redialled by itself."""


class HostKeyRefused(HostUnreachable):
    """The host's key is unknown, changed or revoked; it is never accepted silently."""


class LoginRefused(HostUnreachable):
    """Every way to log in was refused. Not redialled by itself: repeated refusals lock accounts."""


class LoginNeeded(HostUnreachable):
    """A person must answer a prompt. Not redialled by itself: no push storms."""


class CommandFailed(TrainmonError):
    """A command could not be run, or exceeded its timeout."""
