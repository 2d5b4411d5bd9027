"""An unknown trainer: the dashboard teaches its log format, and check confirms it."""

from __future__ import annotations

import base64
import re
import tomllib

from tests.end_to_end.product import Product


def test_a_format_that_is_made_in_the_dashboard_is_pasted_and_read(product: Product) -> None:
    log = product.work / "odd.log"
    log.write_text("".join(f"10:00:{n} [rank0] {n}0 : 2.{99 - n}\n" for n in range(10, 40)) + "saved\n")
    config = product.config(f'[[run]]\nname = "odd"\nlog = "{log}"\n')
    before = product.run("check", "--config", str(config))
    assert before.returncode == 3
    assert re.search(r"✗ \S+ +log of odd +no step in its last 31 lines\n", before.stdout)

    screen = product.screen("--config", str(config), columns=80, rows=24)
    screen.until_shown("ssh 1/1", "saved")
    screen.keys("4")
    screen.until_shown("& Only")
    screen.keys("i")
    screen.until_shown("Log format of odd: not recognised", r"fields +none")
    screen.keys("k")
    screen.until_shown(r"\^\^\^ step", r"fields +step=390")
    screen.keys("\x1b[C")
    screen.until_shown(r"\^\^\^\^ no field")
    screen.keys("l")
    screen.until_shown(r"fields +step=390  loss=2.60", r"reads +30 of 31 lines, steps 100–390")
    screen.keys("y")
    screen.until_shown("paste it at the end of trainmon.toml")
    (copied,) = re.findall(rb"\x1b\]52;c;([\w+/=]+)\x07", bytes(screen.screen))
    screen.keys("\x1b")
    screen.until_gone("Log format of odd")
    screen.leave()

    block = base64.b64decode(copied).decode()
    assert tomllib.loads(block)["log_format"] == [{"name": "odd", "template": "[{}] {step} : {loss}"}]
    config.write_text(config.read_text() + block)
    after = product.run("check", "--config", str(config))
    assert after.returncode == 0, after.stdout
    assert re.search(r"✓ \S+ +log of odd +step 390, format odd\n", after.stdout)
    assert re.search(r"✓ log_format +odd +matches lines of odd\n", after.stdout)
