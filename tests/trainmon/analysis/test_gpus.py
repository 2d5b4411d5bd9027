"""What Xids and SXids mean."""

from __future__ import annotations

import pytest

from trainmon.analysis.gpus import HARDWARE, IGNORED, meaning, switch_meaning

RESET_OR_REBOOT = (46, 48, 62, 64, 74, 79, 95, 110, 119, 120, 136, 140, 143, *range(144, 151), 155, 156, 158)
PROGRAMS = (8, 11, 13, 25, 31, 32, 39, 40, 41, 68, 69, 70, 72, 75, 77, 80, 83, 85, 88, 96, 105, 126, 135, 139)
NEVER_ALONE = (14, 37, 38, 43, 44, 45, 63, 66, 67, 93, 106, 107, 137, 141)


@pytest.mark.parametrize("code", RESET_OR_REBOOT)
def test_what_needs_a_reset_or_a_reboot_is_hardware(code: int) -> None:
    text = "RLW_REMAP Fatal XC1 i0 Link 03" if code in range(144, 151) else None
    assert meaning(code, text).kind == "hardware"
    assert "drain" in meaning(code, text).advice


@pytest.mark.parametrize("code", PROGRAMS)
def test_what_a_program_does_is_no_hardware(code: int) -> None:
    assert meaning(code).kind == "application"


@pytest.mark.parametrize("code", NEVER_ALONE)
def test_what_is_never_a_cause_alone_is_ignored(code: int) -> None:
    assert meaning(code).kind == "ignored"


@pytest.mark.parametrize("code", [92, 94, 109])
def test_hardware_that_coped_is_watched(code: int) -> None:
    assert meaning(code).kind == "watch"


@pytest.mark.parametrize("code", range(144, 151))
def test_a_node_is_not_drained_for_what_the_driver_calls_nonfatal(code: int) -> None:
    mild = meaning(code, "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x00000004)")
    assert (mild.kind, "drain" in mild.advice) == ("watch", False)
    assert meaning(code, "NETIR Fatal XC0 i0 Link -1 (0x000fe406)").kind == "hardware"


def test_no_code_is_in_two_classes() -> None:
    assert not set(HARDWARE) & set(IGNORED)
    assert not {*PROGRAMS} & {*HARDWARE, *IGNORED}


def test_a_code_that_is_in_no_list_is_to_be_looked_up() -> None:
    assert meaning(999) == ("unknown", "not in NVIDIA's catalogue", meaning(999).advice)
    assert meaning(999).advice.startswith("look it up")
    assert meaning(78).name == "vGPU could not start"


@pytest.mark.parametrize(
    ("action", "kind"),
    [("Drain and Reset", "hardware"), ("Node Reboot Required", "hardware"), ("GPU Reset Required", "hardware"),
     ("Drain P2P", "hardware"), ("None", "ignored")],
)  # fmt: skip
def test_of_154_the_text_is_the_verdict(action: str, kind: str) -> None:
    found = meaning(154, f"GPU recovery action changed from 0x1 (GPU Reset Required) to 0x4 ({action})")
    assert found.kind == kind
    assert kind == "ignored" or found.name == f"the driver recommends: {action}"


def test_154_without_its_text_is_a_word_to_look_after() -> None:
    assert meaning(154).kind == "watch"


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [(12028, "NVSwitch: Non-fatal, Link 61 egress non-posted PRIV error (First)", "watch"),
     (20034, "NVSwitch: Fatal, Link 30 LTSSM Fault Up", "hardware"),
     (23005, "NVSwitch: something new", "hardware"),
     (31337, "NVSwitch: something new", "unknown")],
)  # fmt: skip
def test_an_sxid_is_what_the_driver_calls_it(code: int, text: str, kind: str) -> None:
    assert switch_meaning(code, text).kind == kind
