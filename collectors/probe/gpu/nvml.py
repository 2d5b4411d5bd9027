"""The GPUs through NVIDIA's NVML, and those of AMD. Each GPU is one operation, so a GPU that hangs costs one row.

What a driver does not report is null, never 0. An unsupported field is not read again: the driver's lock is shared with
the training. A GPU keeps its row and its index as long as the probe lives.
"""

import functools
import os
import time

import pynvml

from collectors.probe import host
from collectors.probe.gpu.card import FAULTS, Card, Processes, error_rows
from collectors.probe.gpu.xid import Deduplicator, KernelLog, NvmlEvents
from collectors.probe.stdlib import Any, Line, Mapping, Operation

REOPEN_AFTER = 10
"""Slow periods between a lost or missing GPU and a new start of NVML: after a reset, a GPU has new handles."""


class Gpus:
    """All GPUs of the node: their fast numbers, their slow facts, their Xids."""

    def __init__(self, spec: "Mapping[str, Any]", root: str = "/") -> None:
        self.root = root
        self.is_confined = not host.has_all(root)
        self.cards = {}  # type: dict[int, Card]
        self.known = []  # type: list[list[Any]]
        self.expected = 0
        self.is_open = False
        self.smi = None  # type: Any
        self.amd = None  # type: Any
        self.has_new = False
        self.reopen_in = 0
        self.must_reopen = False
        self.error = None  # type: str | None
        self.events = None  # type: NvmlEvents | None
        self.log = KernelLog()
        self.deduplicator = Deduplicator()
        self.processes = Processes(root)
        self.hello = host.hello(root)
        self.greeted = {}  # type: Line
        self.configure(spec)

    def configure(self, spec: "Mapping[str, Any]") -> None:
        self.spec = spec

    # -- what the worker runs -----------------------------------------------------------------------------------

    def operations(self, slow: bool) -> "list[Operation]":
        due = [("amdgpu", self.find_amd)] if slow else []  # type: list[Operation]
        if self.smi is not None:
            return [*due, ("smi", lambda: self.smi and self.smi.advance(slow)), ("xid", self.xids)]
        if self.must_reopen:
            return [("nvml", self.reopen)]  # the GPUs are read right after it, by their new handles
        if self.amd_cards() and not self.amd.is_tried:
            due += [("amdsmi", self.amd.load)]  # if it hangs, sysfs is read
        due += [("nvml", self.open)] if not self.is_open and slow else []
        for kind, cards in (("gpu", sorted(self.cards.items())), ("amd", self.amd_cards())):
            due += [("%s:%d" % (kind, index), functools.partial(self.read, card, slow)) for index, card in cards]
        due += [("xid", self.xids)]
        if slow and (self.cards or self.amd_cards() or (self.is_open and self.expected)):
            due += [("processes", self.look_up), ("facts", self.facts)]
        return due

    def stuck(self, name: str, text: str) -> "list[Line]":
        """Rows for GPUs that are not read, because the driver does not return."""
        kind, _, index = name.partition(":")
        text = ("amdgpu: " if kind == "amd" else "NVML: ") + text
        if kind in ("gpu", "amd"):
            return error_rows([int(index)], text)
        return self.greeting("nvml", text) + error_rows(self.known_indices(), text) if kind == "nvml" else []

    def known_indices(self) -> "list[int]":
        return [index for index, _, _ in self.known]

    def state(self) -> "Line":
        """What the next worker must know of this one's GPUs."""
        return {
            "known": self.known,
            "expected": self.expected,
            "greeted": self.greeted,
            "record": self.log.last,
            "amd": [[index, card.slot] for index, card in self.amd_cards()],
        }

    def restore(self, state: "Mapping[str, Any]") -> None:
        self.known, self.expected, self.greeted = state["known"], state["expected"], state["greeted"]
        self.log.last = state["record"]
        if state["amd"]:
            self.begin_amd(state["amd"])

    # -- AMD ----------------------------------------------------------------------------------------------------

    def find_amd(self) -> None:
        """Look for GPUs of the driver amdgpu. Their indices come after those of NVIDIA's."""
        before, self.has_new = len(self.amd_cards()), False
        if self.amd is None and host.has_amdgpu(self.root):
            self.begin_amd([])
        if self.amd is not None:
            self.amd.find(host.on_the_bus(self.root))
            self.has_new = len(self.amd_cards()) > before
        if self.amd_cards() and self.smi is not None and self.smi.command == "rocm-smi" and self.smi.call is None:
            self.smi = None  # the driver was still being loaded when it began

    def begin_amd(self, known: "list[list[Any]]") -> None:
        from collectors.probe.gpu import amd

        self.amd = amd.AmdGpus(self.root, known)

    def amd_cards(self) -> "list[tuple[int, Any]]":
        return sorted(self.amd.cards.items()) if self.amd is not None else []

    # -- opening ------------------------------------------------------------------------------------------------

    def open(self) -> "list[Line]":
        """Initialise NVML, or report why that fails. The probe's first line comes from here."""
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            return self.without_nvml(error)
        self.cards = self.find()
        self.is_open, self.error = True, None
        try:
            driver = str(pynvml.nvmlSystemGetDriverVersion())
        except pynvml.NVMLError:
            driver = None
        if not self.expected:
            self.expected = max(len(self.cards), self.on_the_bus())
        self.known = [[card.index, card.pci, card.uuid] for card in self.cards.values()]
        handles = {card.index: card.handle for card in self.cards.values() if card.handle is not None}
        try:
            self.events = NvmlEvents(pynvml, handles)
        except pynvml.NVMLError:
            self.events = None  # so in some containers; the kernel log may have the Xids
        return self.greeting("nvml", self.hidden(), driver) + ([] if self.cards or self.expected else self.facts())

    def hidden(self) -> "str | None":
        """That a step of a job, in which this runs, sees none of the GPUs of the node."""
        is_step = self.is_confined and host.STEP in os.environ
        count = host.on_the_bus(self.root) if is_step and not self.cards else 0
        return "NVML shows no GPU here: %s the %d GPUs of this node" % (host.HIDDEN, count) if count else None

    def reopen(self) -> "list[Line]":
        """Close and open NVML in one operation: a GPU has new handles after a reset, and the others show no gap."""
        self.must_reopen = False
        self.close("NVML is being reopened")
        return self.open()

    def on_the_bus(self) -> int:
        """The GPUs that this process should see, by the PCI bus."""
        return 0 if self.is_confined else host.on_the_bus(self.root)

    def expected_amd(self) -> int:
        """The AMD GPUs that this process should see. Partitions may be more than what the PCI bus shows."""
        seen = len(self.amd_cards())
        return seen if self.is_confined else max(seen, host.listed_by_linux(self.root, "0x1002", host.AMD_CLASSES))

    def without_nvml(self, error: "Any") -> "list[Line]":
        present = self.on_the_bus()
        self.expected = max(self.expected, present)
        of_amd = 0 if self.amd_cards() else self.expected_amd()
        count = self.expected + of_amd
        expected = [{"k": "gpus", "g": [], "expected": count}] if count else []  # type: list[Line]
        self.error = None
        if error.value != pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            self.error = "NVML: %s" % FAULTS.get(error.value, str(error))
            if error.value in (pynvml.NVML_ERROR_NO_PERMISSION, pynvml.NVML_ERROR_DRIVER_NOT_LOADED):
                self.error = self.hidden() or self.error
        else:
            from collectors.probe.gpu import smi

            if smi.exists(smi.Smi.command):
                self.smi = smi.Smi(self)
                note = "libnvidia-ml.so.1 cannot be loaded: nvidia-smi is read instead"
                return self.greeting("nvidia-smi", note) + expected
            if self.amd is not None and not self.amd_cards() and smi.exists("rocm-smi"):
                from collectors.probe.gpu import rocm_smi

                self.smi = rocm_smi.RocmSmi(self)
                return self.greeting("rocm-smi", "/sys shows no GPU of amdgpu: rocm-smi is read instead") + expected
            if present:
                self.error = "%d NVIDIA GPUs, but no libnvidia-ml.so.1: is the driver installed?" % present
            elif of_amd:
                lacks = "card of amdgpu" if host.has_amdgpu(self.root) else "amdgpu: is the driver loaded?"
                self.error = "%d AMD GPUs, but no %s" % (of_amd, lacks)
        lines = self.greeting("none", self.error) + expected
        return lines + error_rows(self.known_indices(), self.error or "NVML is gone")

    def find(self) -> "dict[int, Card]":
        """The GPUs of this NVML session, each under the index of its first appearance."""
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
            elif cards[index].pci is None:  # it does not report who it is, but it has this one's position
                cards[index].pci, cards[index].uuid = address, uuid
        for index, card in cards.items():
            card.index = index
            card.facts.update(index=index, uuid=card.uuid)
        return cards

    def greeting(self, probe: str, note: "str | None", driver: "str | None" = None) -> "list[Line]":
        """The probe's first line, sent again whenever it changes."""
        probe = self.amd.source if self.amd_cards() and not self.cards and self.smi is None else probe
        line = dict(
            self.hello,
            probe=probe,
            note=note,
            driver=driver or host.driver_version(self.root),
            confined=self.is_confined,
        )
        before, self.greeted = self.greeted, dict(line, note=note if probe != "nvml" else bool(note))
        return [] if self.greeted == before else [line]

    # -- reading ------------------------------------------------------------------------------------------------

    def read(self, card: Card, slow: bool) -> "list[Line]":
        """One GPU's row. Its slow facts are stored; `facts` sends them for all GPUs."""
        if card.index in self.cards and not self.is_open:
            return error_rows([card.index], self.error)
        row = card.fast()
        if slow and not card.lost and card.handle is not None:
            card.slow()
            self.processes.update(card)
        if card.closed:
            self.close("NVML: %s" % card.error)
        return [{"k": "gpu", "g": [row]}]

    def all_cards(self) -> "list[Any]":
        return [card for _, card in [*sorted(self.cards.items()), *self.amd_cards()]]

    def look_up(self) -> None:
        self.processes.look_up(self.all_cards(), bool(self.spec.get("own")))

    def close(self, why: str) -> None:
        """Close the library; the next slow period opens it again."""
        self.is_open, self.error, self.events = False, why, None
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError:
            self.is_open = False

    def facts(self) -> "list[Line]":
        if any(card.error for card in self.cards.values()) or len(self.cards) < self.expected:
            self.reopen_in = (self.reopen_in or REOPEN_AFTER) - 1
            self.must_reopen = self.is_open and not self.reopen_in
        rows = [dict(card.facts, processes=self.processes.of(card)) for card in self.all_cards()]
        own = [self.processes.own[pid][1] for pid in sorted(self.processes.own)]
        return [{"k": "gpus", "g": rows, "expected": self.expected + self.expected_amd(), "own": own}]

    def xids(self) -> "list[Line]":
        """New Xids from both sources, without duplicates."""
        indices = {address: index for index, address, _ in self.known}
        lines = self.log.faults(time.monotonic())
        for line in lines:
            line["index"] = indices.get(line.pop("pci"))
        lines += self.events.faults() if self.events is not None else []
        return [line for line in lines if self.deduplicator.is_new(line["index"], line["code"], line["source"])]
