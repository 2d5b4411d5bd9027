"""The columns of a plot from the answer of a range query."""

from __future__ import annotations

import math

from collectors.prometheus.query import DCGM, Series
from collectors.prometheus.readings import columns

USED, HEAT, UTILIZATION = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_UTIL"


def series(metric: str, *values: float | None, instance: str = "", label: str = "Hostname") -> Series:
    """One value for each second from 0 on; None is no sample."""
    labels = {"__name__": metric, label: "a", "gpu": "3"} | ({"GPU_I_ID": instance} if instance else {})
    return Series(labels, tuple((float(at), str(value)) for at, value in enumerate(values) if value is not None))


def plotted(field: str, *found: Series) -> list[float | None]:
    answers = {label: [one for one in found if label in one.metric] for label in DCGM.node_labels}
    column = columns(DCGM, answers, {"a": "a"}, round, 3).get((3, field), ())
    return [None if math.isnan(value) else value for value in column]


def test_a_gpu_has_a_value_for_each_step_or_none() -> None:
    assert plotted("temperature_c", series(HEAT, 40, None, 60)) == [40, None, 60]


def test_the_past_goes_on_after_its_exporter_has_renamed_the_label_of_the_node() -> None:
    upgraded = [series(HEAT, 40), series(HEAT, None, 50, 60, label="hostname")]
    assert plotted("temperature_c", *upgraded) == [40, 50, 60]


def test_the_memory_of_a_gpu_is_that_of_its_instances() -> None:
    shares = [series(USED, 10, 20, 30, instance="1"), series(USED, 1, None, 3, instance="2")]
    assert plotted("memory_used_mib", *shares) == [11, 20, 33]


def test_its_instances_have_its_temperature_and_not_its_utilization() -> None:
    instances = [series(HEAT, 40, 41, 42, instance=one) for one in "12"]
    assert plotted("temperature_c", *instances) == [40, 41, 42]
    assert plotted("utilization_pct", series(UTILIZATION, 9, 9, 9, instance="1")) == []


def test_the_values_of_the_gpu_itself_come_first_as_before_it_was_divided() -> None:
    assert plotted("memory_used_mib", series(USED, 70, None, 72), series(USED, None, 30, 31, instance="1")) == [
        70,
        30,
        72,
    ]
