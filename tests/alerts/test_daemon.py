"""What fires is told, what is over is told, and nothing that happens to the daemon loses or doubles a word of it."""

from __future__ import annotations

from collections.abc import Callable

from tests.alerts.conftest import TOPIC
from tests.alerts.watch import PATIENCE, Watch
from tests.end_to_end.product import Cluster, until
from tests.lab.nvml import GPU_IS_LOST
from tests.lab.ntfy_server import Message, NtfyServer

MakeWatch = Callable[..., Watch]


def told(ntfy: NtfyServer, *words: str) -> list[Message]:
    """The messages whose title has all these words."""
    return [message for message in ntfy.of(TOPIC) if all(word in message.title for word in words)]


def until_told(ntfy: NtfyServer, *words: str) -> Message:
    try:
        until(lambda: told(ntfy, *words), f"a message titled {words}", PATIENCE)
    except AssertionError as error:
        error.add_note(f"these came: {[message.title for message in ntfy.messages]}")
        raise
    return told(ntfy, *words)[-1]


def test_a_fault_on_a_node_reaches_the_phone_is_acknowledged_there_and_its_end_is_told(
    nodes: Cluster, ntfy: NtfyServer, watch: MakeWatch
) -> None:
    daemon = watch()
    daemon.start()
    daemon.until("source", source="node:n0", health="ok")
    nodes.nvml[0].error(1, "*", GPU_IS_LOST)
    message = until_told(ntfy, "CODE RED", "n0")
    assert message.priority == 5
    ntfy.press(message)
    daemon.until("acknowledged")
    alert = daemon.alert("gpu-lost")
    assert alert is not None
    assert alert["acknowledged_by"]
    nodes.nvml[0].clear(gpus=2)
    until_told(ntfy, "RESOLVED", "n0")
    print([m.title for m in ntfy.messages])
