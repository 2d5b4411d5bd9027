"""The settings of an attempt, as they are stored, and which of them differ between two attempts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from trainmon.lib import MASK, clean, scrub
from trainmon.model import Attempt, SettingChange, Settings

NAME = 200
VALUE = 500
"""Characters kept of a name and of a value."""

AT_MOST = 64 * 1024
"""Characters of all settings of one attempt."""


def settings_of(values: Mapping[str, str]) -> Settings:
    """The settings as they are stored: without secrets, and not too many."""
    return _stored(tuple(sorted(values.items())))


@lru_cache(256)
def _stored(pairs: tuple[tuple[str, str], ...]) -> Settings:
    kept: dict[str, str] = {}
    left = AT_MOST
    for name, value in pairs:
        shown = clean(scrub(value), VALUE)
        name, shown = clean(scrub(name), NAME), MASK if MASK in scrub(f"{name}={value}") else shown
        left -= len(name) + len(shown)
        if left < 0:
            break
        kept[name] = shown
    return Settings(values=kept, left_out=len(pairs) - len(kept))


def changed_settings(before: Attempt, after: Attempt) -> tuple[SettingChange, ...]:
    """The settings that differ: those of W&B, if both have them, else those of their config files."""
    files = (one.files.get("config_path") for one in (before, after))
    pairs = [(one.settings, file and file.settings) for one, file in zip((before, after), files, strict=True)]
    for was, now in zip(*pairs, strict=True):
        if was is None or now is None:
            continue
        names = sorted(was.values.keys() | now.values.keys())
        if was.left_out or now.left_out:  # what one of them lacks may have been left out
            names = sorted(was.values.keys() & now.values.keys())
        found = ((name, was.values.get(name), now.values.get(name)) for name in names)
        return tuple(SettingChange(name=name, before=old, after=new) for name, old, new in found if old != new)
    return ()
