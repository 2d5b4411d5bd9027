"""Samples that the demo's runs log to W&B: pictures that get clearer as training goes on, and answers."""

from __future__ import annotations

import json
import math
import struct
import zlib
from random import Random

WIDTH, HEIGHT = 96, 64
SKY, SUN, HILL = (64, 116, 196), (250, 214, 92), (44, 118, 66)


def frame(step: int, done: float) -> bytes:
    """A sun over a hill as PNG. `done` is the finished share of the training, from 0 to 1."""
    random = Random(step)
    grain = 150 * (1 - done) ** 2 + 6
    sun = 12 + 72 * random.random()
    rows = bytearray()
    for y in range(HEIGHT):
        rows.append(0)  # no filter
        for x in range(WIDTH):
            noise = grain * (random.random() - 0.5)
            is_hill = y > HEIGHT * (0.72 + 0.1 * math.sin(x / 15))
            colour = HILL if is_hill else SUN if math.hypot(x - sun, y - 18) < 9 else SKY
            rows += bytes(max(0, min(255, int(part + noise))) for part in colour)
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(rows), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts)


def answers(step: int) -> bytes:
    """Prompts and a model's answers, as a W&B table."""
    prompts = ("What is a checkpoint?", "Why did the loss jump?", "Is the run alive?")
    replies = ("A file from which training goes on.", f"Look at the data of step {step}.", "It stepped 2 s ago.")
    data = [list(pair) for pair in zip(prompts, replies, strict=True)]
    return json.dumps({"columns": ["prompt", "answer"], "data": data}).encode()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
