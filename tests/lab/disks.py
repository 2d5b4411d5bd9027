"""The disk of the machine that runs the tests may be nearly full, or be filled beside them: these rules then warn."""

from __future__ import annotations

FULLNESS = ("disk-full", "inodes-full", "disk-forecast")

OF_ANY_DISK = "".join(f'[[rule]]\ntype = "{rule}"\nenabled = false\n' for rule in FULLNESS)
"""For a config of which only other alerts are expected."""
