"""Looks at the ranks of a run: which of them hold it up. Each source has a module, named as the source."""

from trainmon.runtime.looks.automatic import AutomaticLooks
from trainmon.runtime.looks.nodes import Nodes, Request
from trainmon.runtime.looks.service import SOURCES, Looks, Source
from trainmon.runtime.looks.stacks import Stacks

__all__ = ["SOURCES", "AutomaticLooks", "Looks", "Nodes", "Request", "Source", "Stacks"]
