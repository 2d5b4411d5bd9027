"""Sentences that name what a person can do: a key of the dashboard there, a command elsewhere. Pure."""

from __future__ import annotations

from typing import Literal, NamedTuple

Medium = Literal["key", "command"]
"""Where a sentence is read: beside the keys of the dashboard, or on a command line."""


class Means(NamedTuple):
    """How a person does something. `ask` in trainmon.actions.verbs makes those of a verb."""

    key: str
    command: str


Sentence = str | tuple[str | Means, ...]
"""A text, or its parts."""


def say(sentence: Sentence, medium: Medium = "key") -> str:
    """The text of a sentence. What is kept names keys."""
    parts = (sentence,) if isinstance(sentence, str) else sentence
    return "".join(part if isinstance(part, str) else getattr(part, medium) for part in parts)


def joined(*sentences: Sentence) -> Sentence:
    """Several sentences as one; a text if they are texts."""
    parts = tuple(part for one in sentences for part in ((one,) if isinstance(one, str) else one))
    return parts if any(isinstance(part, Means) for part in parts) else say(parts)
