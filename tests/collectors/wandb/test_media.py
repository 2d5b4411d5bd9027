"""The samples that a summary names: images one by one and in rows, videos, tables; names that lead elsewhere."""

from __future__ import annotations

import pytest

from collectors.wandb.convert import SAMPLES_AT_MOST, is_safe_path, read_samples
from trainmon.model import Sample


def test_an_image_has_its_step_in_its_name() -> None:
    image = {
        "_type": "image-file", "path": "media/images/val/x_1200_0a1b2c3d4e.png", "size": 4096, "width": 512,
        "height": 256, "format": "png", "caption": "a \x1b[31mcat",
    }  # fmt: skip
    assert read_samples({"val/x": image, "loss": 2.0}) == (
        Sample(
            key="val/x", kind="image", file="media/images/val/x_1200_0a1b2c3d4e.png", step=1200, bytes=4096, width=512,
            height=256, caption="a cat",
        ),
    )  # fmt: skip


def test_of_a_row_of_images_the_first_is_the_sample() -> None:
    names = [f"media/images/grid_40_{index}_0a1b2c3d{index}.png" for index in range(4)]
    row = {
        "_type": "images/separated", "width": 64, "height": 64, "format": "png", "count": 4, "filenames": names,
        "captions": ["one", "two", "three", "four"],
    }  # fmt: skip
    (sample,) = read_samples({"grid": row})
    assert (sample.file, sample.caption, sample.note, sample.width) == (names[0], "one", "the first of 4", 64)


def test_of_a_gif_the_first_frame_stands_for_it_of_another_video_none() -> None:
    gif = {"_type": "video-file", "path": "media/videos/a_5_abcdef12.gif", "size": 9}
    film = {"_type": "video-file", "path": "media/videos/b_4_abcdef12.mp4", "size": 9, "width": 640, "height": 360}
    films = {"_type": "videos", "count": 2, "videos": [film, gif], "captions": False}
    samples = read_samples({"a": gif, "b": film, "c": films})
    assert [(sample.key, sample.kind, sample.step, sample.note) for sample in samples] == [
        ("a", "video", 5, "a video: its first frame is shown"),
        ("b", "video", 4, "a video: it cannot be drawn here"),
        ("c", "video", 4, "the first of 2; a video: it cannot be drawn here"),
    ]


def test_the_latest_step_comes_first_and_media_within_mappings_are_found() -> None:
    def image(step: int) -> dict[str, object]:
        return {"_type": "image-file", "path": f"media/images/x_{step}_abcdef12.png"}

    table = {"_type": "table-file", "path": "media/table/rows_7_abcdef12.table.json", "ncols": 2, "nrows": 9}
    samples = read_samples({"old": image(5), "val": {"new": image(90)}, "rows": table})
    assert [(sample.key, sample.kind, sample.step) for sample in samples] == [
        ("val.new", "image", 90),
        ("rows", "table", 7),
        ("old", "image", 5),
    ]


def test_what_is_no_file_or_cannot_be_read_is_no_sample() -> None:
    assert (
        read_samples(
            {
                "histogram": {"_type": "histogram", "bins": []},
                "empty": {"_type": "images/separated", "filenames": []},
                "odd": {"_type": "image-file", "path": 3},
                "elsewhere": {"_type": "image-file", "path": "../../etc/passwd"},
                "artifact": {"_type": "image-file", "path": None},
                "typed": {"_type": ["image-file"]},
            }
        )
        == ()
    )


def test_samples_are_bounded() -> None:
    image = {"_type": "image-file", "path": "media/images/x_1_abcdef12.png"}
    assert len(read_samples({f"k{index}": image for index in range(500)})) == SAMPLES_AT_MOST


@pytest.mark.parametrize("name", ["/etc/passwd", "a/../../b", "", "a\x1b[2Jb.png", "a\\..\\b", "..", "a\nb"])
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    assert not is_safe_path(name)
