"""Looks at the ranks of a run: which of them hold it up. A source is named as its module; `proc` has stacks, too."""

from trainmon.runtime.looks.nodes import Nodes, Request
from trainmon.runtime.looks.proc import Stacks
from trainmon.runtime.looks.service import SOURCES, AutomaticLooks, Looks, Source

__all__ = ["SOURCES", "AutomaticLooks", "Looks", "Nodes", "Request", "Source", "Stacks"]
