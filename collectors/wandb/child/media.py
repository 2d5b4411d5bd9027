"""The newest samples of a run, as its summary names them: images, videos, tables, audio. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, TypeGuard

from trainmon.analysis.wandb.values import DEEPEST, integer, safe_text
from trainmon.lib import clean
from trainmon.model import Sample

SAMPLES_AT_MOST = 50

KINDS = {
    "image-file": "image", "images/separated": "image", "images": "image", "video-file": "video", "videos": "video",
    "table-file": "table", "audio-file": "audio", "audio": "audio", "html-file": "html", "object3D-file": "object3D",
}  # fmt: skip
"""The kind of a sample by the `_type` in W&B's summary."""

STEP = re.compile(r"_(\d{1,15})_[0-9a-f]{4,64}(?:\.[\w.]{1,40})?$")
"""`media/images/val_120_ab12cd.png`: the name contains the step and a hash."""


def read_samples(summary: Mapping[str, Any]) -> tuple[Sample, ...]:
    """The newest sample of each metric that has some, the latest step first."""
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
    files = next((value[name] for name in ("filenames", "videos", "audio") if _is_filled(value.get(name))), None)
    first = value if files is None else files[0] if isinstance(files[0], Mapping) else {**value, "path": files[0]}
    captions = value.get("captions")
    caption = captions[0] if _is_filled(captions) else value.get("caption")
    kind, path = KINDS.get(str(value["_type"])), first.get("path")
    if kind is None or not isinstance(path, str) or not is_safe_path(path):
        return None
    step = STEP.search(path)
    notes = [f"the first of {len(files):,}"] if files is not None and len(files) > 1 else []
    if kind == "video":
        is_gif = path.lower().endswith(".gif")
        notes.append("a video: its first frame is shown" if is_gif else "a video: it cannot be drawn here")
    return Sample(
        key=safe_text(key) or "?",
        kind=kind,
        file=path,
        step=int(step[1]) if step else None,
        bytes=integer(first.get("size")),
        width=integer(first.get("width")),
        height=integer(first.get("height")),
        caption=safe_text(caption if caption is not None else first.get("caption")),
        note="; ".join(notes) or None,
    )


def _is_filled(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list) and len(value) > 0


def is_safe_path(path: str) -> bool:
    """Whether a file's name is safe to show, and stays below the run's own files."""
    parts = PurePosixPath(path)
    return clean(path) == path != "" and not parts.is_absolute() and ".." not in parts.parts and "\\" not in path
