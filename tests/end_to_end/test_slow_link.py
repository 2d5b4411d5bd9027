"""A dashboard at the end of a link of 40 KB/s with 0.3 s of latency each way."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from tests.end_to_end.product import Cluster, Product, step_line
from tests.lab.slow_link import SlowLink

CONFIG = """
[cluster]
login = "n0"
nodes = ["n[0-4]"]
[[run]]
name = "llm"
log = "{work}/train.log"
"""


def test_five_hosts_connect_over_a_slow_link_once_and_nothing_is_wrong(
    product: Product, cluster: Callable[..., Cluster]
) -> None:
    nodes = cluster(5)
    log = product.work / "train.log"
    log.write_text("".join(step_line(step) for step in range(1, 1000)))
    with SlowLink.to(nodes.sshd) as link:
        product.ssh_config = nodes.sshd.ssh_config(5, extra=f"Host *\n  Port {link.port}\n")
        screen = product.screen("--config", str(product.config(CONFIG.format(work=product.work))), columns=160)
        begun = moved_at = time.monotonic()
        up_at, shown_time, stood = 0.0, "", 0.0
        while not up_at or time.monotonic() < up_at + 10.0:
            time.sleep(0.1)
            text, now = screen.text(), time.monotonic()
            assert not re.search("CLOCK|CRIT|retr", text), text
            assert now < begun + 60.0, text
            if found := re.search(r"\d\d:\d\d:\d\dZ", text):
                stood = max(stood, now - moved_at if shown_time else 0.0)
                if found[0] != shown_time:
                    shown_time, moved_at = found[0], now
            if not up_at and "ssh 5/5" in text:
                up_at = now
        assert stood < 5.0, "the header's time"
        sent = link.up.passed
        assert max(sent.values()) < 100_000, "the code has been sent again"
        screen.until_shown("step 999")
        screen.leave()
