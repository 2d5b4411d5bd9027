"""Logs of a real Hugging Face Trainer, in the pieces in which they grew."""

from __future__ import annotations

import json
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "captured" / "steps" / "hf-trainer"


def pieces(name: str, together: int = 1, first: int = 0) -> list[bytes]:
    """`finished`, `stopped` or `killed`, read so many pieces at once, after the first look found `first` of them."""
    written = [piece.encode() for piece in json.loads((FOLDER / f"{name}.json").read_text())["pieces"]]
    later = range(first, len(written), together)
    return [b"".join(written[:first]), *(b"".join(written[at : at + together]) for at in later)]
