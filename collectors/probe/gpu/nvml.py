"""The GPUs, through NVIDIA's own NVML: one operation a GPU, so that one that hangs is one row.

What a driver refuses is null, never 0, and a field that it does not support is not asked again: the driver's lock is
shared with the training. A GPU that was seen once keeps its row and its index for as long as the probe lives.
"""

import time

import pynvml

from collectors.probe import host
from collectors.probe.gpu import pci
from collectors.probe.gpu.card import FAULTS, Card
from collectors.probe.gpu.processes import Processes
from collectors.probe.gpu.xid import Events, KernelLog, Once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Line = dict[str, Any]

REOPEN_AFTER = 10
"""So many slow periods after a GPU was lost, or not listed, NVML is opened anew: one that was reset has new handles."""


class Gpus:
    """All GPUs of the node: their fast numbers, their slow facts, their Xids."""

    def __init__(self, spec: "Mapping[str, Any]", root: str = "/") -> None:
        self.root = root
        self.is_confined = not pci.has_all(root)
        self.cards = {}  # type: dict[int, Card]
        self.known = []  # type: list[list[Any]]
        self.expected = 0
        self.is_open = False
        self.smi = None  # type: Any
        self.reopen_in = 0
        self.is_due = False
        self.why = None  # type: str | None
        self.events = None  # type: Events | None
        self.log = KernelLog()
        self.once = Once()
        self.processes = Processes(root)
        self.hello = host.hello(root)
        self.said = {}  # type: Line
        self.configure(spec)

    def configure(self, spec: "Mapping[str, Any]") -> None:
        self.spec = spec
        self.mark = spec.get("mark")

    # -- what the worker runs -----------------------------------------------------------------------------------

    def operations(self, slow: bool) -> "list[tuple[str, Callable[[], list[Line] | None]]]":
        if self.smi is not None:
            return [*self.smi.operations(slow), ("xid", self.xids)]
        if self.is_due:
            return [("nvml", self.open_anew)]  # the GPUs are read right after it, by their new handles
        listed = [("nvml", self.open)] if not self.is_open and slow else []  # type: list[tuple[str, Any]]
        for card in [self.cards[index] for index in sorted(self.cards)]:
            listed += [("gpu:%d" % card.index, lambda card=card: self.read(card, slow))]
        listed.append(("xid", self.xids))
        if slow and (self.cards or (self.is_open and self.expected)):
            listed += [("processes", self.name_processes), ("facts", self.facts)]
        return listed

    def stuck(self, name: str, text: str) -> "list[Line]":
        """Rows for GPUs that are not asked, because the driver did not come back from it."""
        word, _, index = name.partition(":")
        if word == "gpu":
            return [{"k": "gpu", "g": [[int(index), "NVML: " + text, False]]}]
        if word != "nvml":
            return []
        rows = [[index, "NVML: " + text, False] for index, _, _ in self.known]
        return self.greeting("nvml", "NVML: " + text) + ([{"k": "gpu", "g": rows}] if rows else [])

    def state(self) -> "Line":
        """What the next worker has to know of this one's GPUs."""
        return {"known": self.known, "expected": self.expected, "said": self.said, "record": self.log.last}

    def restore(self, state: "Mapping[str, Any]") -> None:
        self.known, self.expected, self.said = state["known"], state["expected"], state["said"]
        self.log.last = state["record"]

    # -- opening ------------------------------------------------------------------------------------------------

    def open(self) -> "list[Line]":
        """Start NVML, or say why there is none. The first line of all comes from here."""
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            return self.without_nvml(error)
        self.cards = self.find()
        self.is_open, self.why = True, None
        driver = self.ask_driver()
        if not self.expected:
            self.expected = max(len(self.cards), self.on_the_bus())
        self.known = [[card.index, card.pci, card.uuid] for card in self.cards.values()]
        self.watch_events()
        return self.greeting("nvml", None, driver)

    def open_anew(self) -> "list[Line]":
        """A GPU that was reset has new handles. Closing and opening are one: the others are read without a gap."""
        self.is_due = False
        self.close("NVML is being opened again")
        return self.open()

    def on_the_bus(self) -> int:
        """The GPUs that this process should see, by the PCI bus."""
        return 0 if self.is_confined else pci.on_the_bus(self.root)

    def without_nvml(self, error: "Any") -> "list[Line]":
        present = self.on_the_bus()
        self.expected = max(self.expected, present)
        should = [{"k": "gpus", "g": [], "expected": self.expected}] if self.expected else []  # type: list[Line]
        self.why = None
        if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            from collectors.probe.gpu import smi

            if smi.exists():
                self.smi = smi.Smi(self)
                note = "libnvidia-ml.so.1 cannot be loaded: nvidia-smi is read instead"
                return self.greeting("nvidia-smi", note) + should
            if present:
                self.why = "%d NVIDIA GPUs, but no libnvidia-ml.so.1: is the driver installed?" % present
        else:
            self.why = "NVML: %s" % FAULTS.get(error.value, str(error))
        rows = [[index, self.why or "NVML is gone", False] for index, _, _ in self.known]
        lines = self.greeting("none", self.why) + should
        return lines + ([{"k": "gpu", "g": rows}] if rows else [])

    def find(self) -> "dict[int, Card]":
        """The GPUs of this NVML session, each under the index that it had when it was first seen."""
        before = {address: index for index, address, _ in self.known if address}
        found = [Card(pynvml, position) for position in range(pynvml.nvmlDeviceGetCount())]
        cards = {before[card.pci]: card for card in found if card.pci in before}
        for card in found:
            index = card.index
            while card.pci not in before and (index in cards or (card.pci and index in before.values())):
                index += 1
            cards[before.get(card.pci or "", index)] = card
        for index, address, uuid in self.known:
            if index not in cards:
                cards[index] = Card.vanished(index, address, uuid)
            elif cards[index].pci is None:  # it does not say who it is; it stands where this one stood
                cards[index].pci, cards[index].uuid = address, uuid
        for index, card in cards.items():
            card.index = index
            card.facts.update(index=index, uuid=card.uuid)
        return cards

    def ask_driver(self) -> "str | None":
        try:
            return str(pynvml.nvmlSystemGetDriverVersion())
        except pynvml.NVMLError:
            return pci.driver_version(self.root)

    def watch_events(self) -> None:
        handles = {card.index: card.handle for card in self.cards.values() if card.handle is not None}
        try:
            self.events = Events(pynvml, handles)
        except pynvml.NVMLError:
            self.events = None  # in some containers; the kernel log may tell

    def greeting(self, probe: str, note: "str | None", driver: "str | None" = None) -> "list[Line]":
        """The first line, again whenever it changes."""
        line = dict(self.hello, probe=probe, note=note, driver=driver or pci.driver_version(self.root))
        line["kernel_log"] = self.log.file is not None
        line["confined"] = self.is_confined
        steady = dict(line, note=line["note"] if probe != "nvml" else bool(note))
        if steady == self.said:
            return []
        self.said = steady
        return [line]

    # -- reading ------------------------------------------------------------------------------------------------

    def read(self, card: "Card", slow: bool) -> "list[Line]":
        """One GPU's row. Its slow facts are only kept: `facts` says them for all."""
        if not self.is_open:
            return [{"k": "gpu", "g": [[card.index, self.why, False]]}]
        row = card.fast()
        if slow and not card.lost and card.handle is not None:
            card.slow()
            self.processes.see(card)
        if card.closed:
            self.close("NVML: %s" % card.error)
        return [{"k": "gpu", "g": [row]}]

    def close(self, why: str) -> None:
        """The library has lost its driver: it is opened again at the next slow period."""
        self.is_open, self.why = False, why
        self.events = None
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError:
            self.is_open = False

    def name_processes(self) -> None:
        self.processes.look_up(self.cards.values())

    def facts(self) -> "list[Line]":
        cards = [self.cards[index] for index in sorted(self.cards)]
        if any(card.error for card in cards) or len(cards) < self.expected:
            self.reopen_in = (self.reopen_in or REOPEN_AFTER) - 1
            self.is_due = self.is_open and not self.reopen_in
        rows = [dict(card.facts, processes=self.processes.of(card)) for card in cards]
        return [{"k": "gpus", "g": rows, "expected": self.expected}]

    def xids(self) -> "list[Line]":
        """New faults from both sources, each once."""
        places = {address: index for index, address, _ in self.known}
        lines = []
        for line in self.log.faults(time.monotonic()):
            line["index"] = places.get(line.pop("pci"))
            if self.once.is_news(line["index"], line["code"], "kernel"):
                lines.append(line)
        for index, code in self.events.faults() if self.events is not None else ():
            if self.once.is_news(index, code, "nvml"):
                lines.append({"k": "xid", "code": code, "index": index, "source": "nvml"})
        return lines
