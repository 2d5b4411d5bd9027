"""Looks at the ranks of a run: which of them hold it up. `proc` and the stacks are in nodes.py."""

from trainmon.runtime.looks.nodes import Nodes, Request, Stacks
from trainmon.runtime.looks.service import SOURCES, AutomaticLooks, Looks, Source

__all__ = ["SOURCES", "AutomaticLooks", "Looks", "Nodes", "Request", "Source", "Stacks"]
