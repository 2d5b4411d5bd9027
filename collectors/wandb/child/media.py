"""The newest samples of a run as its summary names them: images, videos, tables, sounds. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from collectors.wandb.child.convert import DEEPEST, shown, whole
from trainmon.lib import clean
from trainmon.model import Sample

SAMPLES_AT_MOST = 50

KINDS = {
    "image-file": "image", "images/separated": "image", "images": "image", "video-file": "video", "videos": "video",
    "table-file": "table", "audio-file": "audio", "audio": "audio", "html-file": "html", "object3D-file": "object3D",
}  # fmt: skip
"""W&B's word for a value that is a file, or some files, and ours."""

STEP = re.compile(r"_(\d{1,15})_[0-9a-f]{4,64}(?:\.[\w.]{1,40})?$")
"""`media/images/val_120_ab12cd.png`: the client writes the step and a hash into the name."""


def read_samples(summary: Mapping[str, Any]) -> tuple[Sample, ...]:
    """The newest sample of each metric that has some, those of the latest step first."""
    found = [sample for key, value in _values(summary) if (sample := _sample(key, value)) is not None]
    found.sort(key=lambda sample: (-(sample.step if sample.step is not None else -1), sample.key))
    return tuple(found[:SAMPLES_AT_MOST])


def _values(values: Mapping[str, Any], before: str = "", depth: int = 1) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            if "_type" in value:
                yield f"{before}{key}", value
            elif depth < DEEPEST:
                yield from _values(value, f"{before}{key}.", depth + 1)


def _sample(key: str, value: Mapping[str, Any]) -> Sample | None:
    kind = KINDS.get(str(value["_type"]))
    first, count, caption = _first(value)
    path = first.get("path")
    if kind is None or not isinstance(path, str) or not is_tame(path):
        return None
    step = STEP.search(path)
    return Sample(
        key=shown(key) or "?",
        kind=kind,
        file=path,
        step=int(step[1]) if step else None,
        bytes=whole(first.get("size")),
        width=whole(first.get("width")),
        height=whole(first.get("height")),
        caption=shown(caption),
        note=_note(kind, path, count),
    )


def _first(value: Mapping[str, Any]) -> tuple[Mapping[str, Any], int, object]:
    """The first file of a value, how many it has, and the first one's caption."""
    captions = value.get("captions")
    caption = captions[0] if isinstance(captions, list) and captions else value.get("caption")
    for name in ("filenames", "videos", "audio"):
        files = value.get(name)
        if isinstance(files, list) and files:
            first = files[0] if isinstance(files[0], Mapping) else {**value, "path": files[0]}
            return first, len(files), caption if caption is not None else first.get("caption")
    return value, 1, caption


def is_tame(path: str) -> bool:
    """Whether a file's name can be shown as it is, and leads nowhere but below the run's own files."""
    parts = PurePosixPath(path)
    return clean(path) == path != "" and not parts.is_absolute() and ".." not in parts.parts and "\\" not in path


def _note(kind: str, path: str, count: int) -> str | None:
    """What is not seen of it."""
    several = f"the first of {count:,}" if count > 1 else ""
    film = ""
    if kind == "video":
        is_drawn = path.lower().endswith(".gif")
        film = "a video: its first frame stands for it" if is_drawn else "a video: none of its frames can be drawn here"
    return "; ".join(filter(None, (several, film))) or None
