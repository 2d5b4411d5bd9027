"""What is kept of a collection that grows."""

from __future__ import annotations

from trainmon.lib import drop_oldest


def test_the_newest_are_kept() -> None:
    kept = dict.fromkeys("abc", 0)
    drop_oldest(kept, 3)
    assert list(kept) == ["a", "b", "c"]
    kept |= {"a": 1, "d": 1}
    drop_oldest(kept, 2)
    assert kept == {"c": 0, "d": 1}
