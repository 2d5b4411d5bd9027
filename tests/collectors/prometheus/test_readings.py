"""What the series of an exporter become: numbers in our units, null where there is no series, and Xids as changes."""

from __future__ import annotations

from typing import Any

import pytest

from collectors.prometheus import query, readings
from collectors.prometheus.query import EXPORTERS, Series, lacking
from tests.collectors.prometheus.captured import NEWEST, series, until
from trainmon.analysis.runs.peers import port_speeds
from trainmon.model import GpuFacts, GpuInstance, GpuSample

DCGM, NODE = EXPORTERS["dcgm"], EXPORTERS["node"]
NODES = {"gpu-001": "gpu-001", "gpu-002": "me@gpu-002", "gpu-003": "gpu-003"}


def one(metric: str, value: float, at: float = 100.0, /, **labels: str) -> Series:
    return Series({"__name__": metric, **labels}, ((at, f"{value}"),))


def test_the_numbers_of_dcgm_are_those_of_the_gpus() -> None:
    found = readings.read(DCGM, "Hostname", series("dcgm"), NODES)
    assert [*found] == ["gpu-001", "me@gpu-002", "gpu-003"]
    node = found["gpu-001"]
    assert (node.at, node.driver) == (NEWEST, "550.54.15")
    assert readings.gpu_samples(node, 1.5)[1] == GpuSample(
        index=1, temperature_c=60, memory_temperature_c=50, memory_used_mib=72_000, utilization_pct=99,
        power_w=650.0, sm_clock_mhz=1_980,
    )  # fmt: skip
    assert readings.gpu_facts(node, 1.5)[0] == GpuFacts(
        index=0, uuid="GPU-00000000-0000-0000-0000-000000000000", name="NVIDIA H100 80GB HBM3", memory_total_mib=81_000
    )
    assert "throttle reasons" in lacking(DCGM, node.fields())
    assert "Xids" not in lacking(DCGM, node.fields())


def test_a_number_whose_series_has_ended_is_null_and_not_zero() -> None:
    node = readings.read(DCGM, "Hostname", series("dcgm"), NODES)["gpu-003"]
    first, second = readings.gpu_samples(node, 1.5)
    assert (first.temperature_c, first.power_w) == (None, 650.0)
    assert second.temperature_c == 60


def test_a_gpu_whose_series_have_all_ended_is_left_out() -> None:
    samples = (one("DCGM_FI_DEV_GPU_TEMP", 60, at, Hostname="a", gpu=gpu) for gpu, at in (("0", 100.0), ("1", 60.0)))
    node = readings.read(DCGM, "Hostname", tuple(samples), {"a": "a"})["a"]
    assert [gpu.index for gpu in readings.gpu_samples(node, 22.5)] == [0]


def mig(metric: str, instance: str, value: float, at: float = 100.0) -> Series:
    labels = {"Hostname": "a", "gpu": "0", "UUID": "GPU-1", "GPU_I_ID": instance, "GPU_I_PROFILE": "3g.40gb"}
    return one(metric, value, at, **labels)


def test_the_instances_of_a_gpu_are_one_gpu_with_mig_and_none_overwrites_another() -> None:
    shares = [
        mig(f"DCGM_FI_DEV_FB_{name}", instance, value)
        for instance, used in (("1", 30_000.0), ("2", 5_000.0))
        for name, value in (("USED", used), ("FREE", 40_000.0 - used))
    ]
    of_both = [mig("DCGM_FI_DEV_GPU_TEMP", instance, 61) for instance in ("1", "2")]
    gone = mig("DCGM_FI_DEV_FB_USED", "7", 9_000.0, 10.0)
    other = one("DCGM_FI_DEV_FB_USED", 7, Hostname="a", gpu="1")
    for order in (1, -1):
        answer = tuple([*shares, *of_both, gone, other][::order])
        node = readings.read(DCGM, "Hostname", answer, {"a": "a"})["a"]
        first, second = readings.gpu_samples(node, 22.5)
        assert (first.temperature_c, first.memory_used_mib, first.utilization_pct) == (61, 35_000, None)
        assert second.memory_used_mib == 7
        facts = readings.gpu_facts(node, 22.5)
        assert [(one.index, one.mig, one.memory_total_mib) for one in facts] == [(0, True, 80_000), (1, None, None)]
        assert facts[0].instances == (
            GpuInstance("1", "3g.40gb", memory_used_mib=30_000, memory_total_mib=40_000),
            GpuInstance("2", "3g.40gb", memory_used_mib=5_000, memory_total_mib=40_000),
        )


def test_the_series_of_a_whole_gpu_come_before_those_of_its_instances() -> None:
    whole = one("DCGM_FI_DEV_FB_USED", 36_000, Hostname="a", gpu="0")
    answer = (mig("DCGM_FI_DEV_FB_USED", "1", 30_000), whole, mig("DCGM_FI_DEV_GPU_UTIL", "1", 50))
    node = readings.read(DCGM, "Hostname", answer, {"a": "a"})["a"]
    (found,) = readings.gpu_samples(node, 22.5)
    assert (found.memory_used_mib, found.utilization_pct) == (36_000, None)


def test_an_xid_is_a_change_and_the_first_sight_is_none() -> None:
    xids = readings.XidChanges(has_times=False)
    answer = series("dcgm")
    before = readings.read(DCGM, "Hostname", until(answer, NEWEST - 2), NODES)["me@gpu-002"]
    now = readings.read(DCGM, "Hostname", answer, NODES)["me@gpu-002"]
    assert [*xids.of("gpu-002", before)] == []
    assert [*xids.of("gpu-002", now)] == [(1, NEWEST - 1, 79)]
    assert [*xids.of("gpu-002", now)] == []
    assert [*readings.XidChanges(has_times=False).of("gpu-002", now)] == []


def test_an_xid_with_a_time_of_its_own_counts_each_time() -> None:
    xids, exporter = readings.XidChanges(has_times=True), EXPORTERS["nvidia_gpu"]

    def seen(*times: float) -> list[tuple[int, float, int]]:
        info = one("nvidia_smi_gpu_info", 1, uuid="u", index="3", instance="a:9835", name="H100")
        label = {"uuid": "u", "instance": "a:9835", "xid": "79"}
        answer = (info, *(one("nvidia_smi_xid_last_timestamp_seconds", at, **label) for at in times))
        return [*xids.of("a", readings.read(exporter, "instance", answer, {"a": "a"})["a"])]

    assert seen() == []
    assert seen(150.0) == [(3, 150.0, 79)]
    assert seen(150.0) == []
    assert seen(200.0) == [(3, 200.0, 79)]


def test_amds_exporter_gives_the_junction_or_the_edge_and_the_margin_follows() -> None:
    def of(gpu: str, **values: float) -> list[Series]:
        labels = {
            "hostname": "a.example",
            "gpu_id": gpu,
            "card_series": "AMD Instinct MI300X",
            "gpu_uuid": "u" + gpu,
        }
        return [
            one(name, value, **labels, clock_type="system" * (name == "gpu_clock")) for name, value in values.items()
        ]

    answer = (
        *of("0", gpu_used_vram=150_000, gpu_total_vram=196_592, gpu_junction_temperature=96, gpu_memory_temperature=70),
        *of("0", gpu_gfx_activity=97, gpu_power_usage=712, gpu_package_power=712, gpu_clock=2_100),
        *of("0", gpu_ecc_uncorrect_total=2, gpu_ecc_correct_total=9),
        *of("1", gpu_used_vram=10, gpu_edge_temperature=51, gpu_average_package_power=90),
        # gpuagent.go of device-metrics-exporter: 0 and ones for what the GPU does not have
        *of("1", gpu_junction_temperature=0, gpu_power_usage=0, gpu_memory_temperature=65_535),
        *of("1", gpu_gfx_activity=65_535),
        *of("0", gpu_edge_temperature=65_535),
        *of("2", gpu_power_usage=0, gpu_package_power=90, gpu_edge_temperature=60, gpu_junction_temperature=94),
        *of("3", gpu_junction_temperature=94, gpu_edge_temperature=60, gpu_gfx_activity=0),
    )
    node = readings.read(EXPORTERS["amd"], "hostname", answer, {"a": "a"})["a"]
    first, second, third, fourth = readings.gpu_samples(node, 22.5)
    assert first == GpuSample(
        index=0, temperature_c=96, memory_temperature_c=70, memory_used_mib=150_000, utilization_pct=97, power_w=712.0,
        sm_clock_mhz=2_100,
    )  # fmt: skip
    assert (second.temperature_c, second.edge_temperature_c, second.power_w) == (51, 51, 90.0)
    assert (second.memory_temperature_c, second.utilization_pct) == (None, None)
    assert (third.temperature_c, third.power_w, fourth.utilization_pct) == (94, 90.0, 0)
    facts, other, *both = readings.gpu_facts(node, 22.5)
    assert [one.temperature_margin_c for one in both] == [6, 6], "of the hottest sensor, whatever comes first"
    assert facts == GpuFacts(
        index=0, uuid="u0", name="AMD Instinct MI300X", memory_total_mib=196_592, temperature_margin_c=4,
        ecc_uncorrected=2, ecc_corrected=9,
    )  # fmt: skip
    assert other.temperature_margin_c == 49


def test_amd_smi_exporter_has_an_index_under_many_names_and_minus_one_for_unknown() -> None:
    values = {
        "current_temperature": (44_000.0, -1.0), "power": (93_000_000.0, -1.0), "power_cap": (560_000_000.0, -1.0),
        "SCLK": (1_700_000_000.0, -1.0), "use_percent": (64.0, 0.0),
    }  # fmt: skip
    answer = tuple(
        one(f"amd_gpu_{name}", value, 100.0, **{"instance": "a:2021", f"gpu_{name}": str(gpu), "productname": "mi250x"})
        for name, both in values.items()
        for gpu, value in enumerate(both)
    )
    node = readings.read(EXPORTERS["amd_smi"], "instance", answer, {"a": "a"})["a"]
    assert readings.gpu_samples(node, 22.5) == (
        GpuSample(index=0, temperature_c=44, power_w=93.0, sm_clock_mhz=1_700, utilization_pct=64),
        GpuSample(index=1, utilization_pct=0),
    )
    assert readings.gpu_facts(node, 22.5)[0] == GpuFacts(
        index=0, name="mi250x", power_limit_w=560.0, temperature_margin_c=56
    )


def test_nvidia_gpu_exporter_counts_in_bytes_hertz_and_ratios() -> None:
    values = {
        "nvidia_smi_temperature_gpu": 34, "nvidia_smi_memory_used_bytes": 706_740_224.0,
        "nvidia_smi_memory_total_bytes": 85_899_345_920.0, "nvidia_smi_utilization_gpu_ratio": 0.42,
        "nvidia_smi_clocks_current_sm_clock_hz": 1.98e9, "nvidia_smi_enforced_power_limit_watts": 700,
        "nvidia_smi_clocks_event_reasons_active": 0x40,
    }  # fmt: skip
    answer = [one(name, value, uuid="u", instance="n1.dc:9835") for name, value in values.items()]
    answer.append(one("nvidia_smi_gpu_info", 1, uuid="u", instance="n1.dc:9835", index="5", name="H100"))
    node = readings.read(EXPORTERS["nvidia_gpu"], "instance", tuple(answer), {"n1": "n1"})["n1"]
    [gpu], [fact] = readings.gpu_samples(node, 20), readings.gpu_facts(node, 20)
    assert (gpu.index, gpu.temperature_c, gpu.memory_used_mib, gpu.utilization_pct) == (5, 34, 674, 42)
    assert (gpu.sm_clock_mhz, gpu.throttle_mask) == (1_980, 0x40)
    assert (fact.name, fact.memory_total_mib, fact.power_limit_w) == ("H100", 81_920, 700)


@pytest.mark.parametrize("labels", [{"gpu_index": "2", "gpu_uuid": "u"}, {"index": "2", "uuid": "u"}])
def test_all_smi_has_new_and_old_names_of_its_labels(labels: dict[str, str]) -> None:
    values = {
        "all_smi_gpu_utilization": 71.4,
        "all_smi_gpu_memory_used_bytes": 2.0**30,
        "all_smi_gpu_frequency_mhz": 900,
    }
    answer = tuple(one(name, value, instance="n1:9090", gpu="H200", **labels) for name, value in values.items())
    node = readings.read(EXPORTERS["all-smi"], "instance", answer, {"n1": "n1"})["n1"]
    [gpu], [fact] = readings.gpu_samples(node, 20), readings.gpu_facts(node, 20)
    assert (gpu.index, gpu.utilization_pct, gpu.memory_used_mib, gpu.sm_clock_mhz) == (2, 71, 1_024, 900)
    assert (fact.uuid, fact.name) == ("u", "H200")


def test_the_host_of_node_exporter() -> None:
    node = readings.read(NODE, "instance", series("node"), {"127.0.0.1": "here"})["here"]
    host = readings.host_sample(node, 5.0, 1.5)
    assert (host.t, host.memory_total_mib, host.boot_time, host.oom_kills) == (5.0, 24_105, 1795327291.0, 0)
    assert host.memory_used_mib is not None
    assert 500 < host.memory_used_mib < 2_000
    assert (host.load1, host.network_errors, host.infiniband) == (1.43, 0, ())


def test_errors_of_infiniband_are_added_up_for_each_port() -> None:
    names = ("symbol_error_total", "port_errors_received_total", "link_error_recovery_total")
    port = {"device": "mlx5_0", "port": "1", "instance": "n1:9100"}
    answer = [one(f"node_infiniband_{name}", 2, **port) for name in names]
    answer += [one("node_infiniband_state_id", 4, **port), one("node_infiniband_link_downed_total", 3, **port)]
    answer += [one("node_infiniband_rate_bytes_per_second", 5e10, **port)]
    answer += [one("node_network_receive_errs_total", 5, device=f"eth{n}", instance="n1:9100") for n in (0, 1)]
    node = readings.read(NODE, "instance", tuple(answer), {"n1": "n1"})["n1"]
    host = readings.host_sample(node, 100.0, 20.0)
    [found] = host.infiniband
    assert (found.port, found.state, found.link_downed, found.errors) == ("mlx5_0/1", "ACTIVE", 3, 6)
    assert (found.rate, port_speeds([found])[0].value) == ("400 Gb/sec", 400.0)
    assert host.network_errors == 10


@pytest.mark.parametrize("value", ["NaN", "+Inf", "2147483632", "9223372036854775794"])
def test_a_value_that_stands_for_none_is_null(value: str) -> None:
    label = {"Hostname": "a", "gpu": "0"}
    answer = (
        Series({"__name__": "DCGM_FI_DEV_POWER_USAGE", **label}, ((100.0, value),)),
        one("DCGM_FI_DEV_GPU_TEMP", 50, **label),
    )
    node = readings.read(DCGM, "Hostname", answer, {"a": "a"})["a"]
    assert readings.gpu_samples(node, 20)[0].power_w is None


@pytest.mark.parametrize(
    ("written", "short"),
    [
        ("gpu-001", "gpu-001"),
        ("me@GPU-001.dc1.example.com", "gpu-001"),
        ("gpu-001.dc1:9400", "gpu-001"),
        ("10.0.0.7:9100", "10.0.0.7"),
        ("[fd00::7]:9100", "fd00::7"),
        ("fd00::7", "fd00::7"),
    ],
)
def test_names_are_compared_without_user_domain_and_port(written: str, short: str) -> None:
    assert query.short_name(written) == short


def test_the_scrape_interval_is_the_gap_between_two_samples() -> None:
    assert readings.interval(series("dcgm")) == pytest.approx(1.0)
    assert readings.interval((one("up", 1),)) is None


def test_a_name_is_no_regular_expression() -> None:
    text: Any = query.of_nodes("instance", ["a.b", "10.0.0.7", 'x"|.*'])
    assert text == r'instance=~"(?i)\\[?(?:a|10\\.0\\.0\\.7|x\\\"\\|)\\]?(?:\\..*)?(?::[0-9]+)?"'
