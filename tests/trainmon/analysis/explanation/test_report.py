"""report: GPU hours by category, as synthetic ledgers of which the truth is known must give them."""

from __future__ import annotations

import pytest

from tests.lab.ledgers import BEGIN, told
from trainmon.analysis.explanation import report

PRICES = {"prod": 2.0}


@pytest.mark.parametrize("seed", range(20))
def test_the_gpu_hours_are_those_of_the_truth(seed: int) -> None:
    ledger = told(seed)
    found = report(ledger.attempts, BEGIN - 10, ledger.until, PRICES)
    assert found.totals.hours == pytest.approx({**dict.fromkeys(found.totals.hours, 0.0), **ledger.gpu_hours})
    assert found.totals.total == pytest.approx(sum(ledger.gpu_hours.values()))
    assert found.totals.failures == ledger.failures
