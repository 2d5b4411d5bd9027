"""Looks at the ranks of a run: which of them hold it up. Each source has a module, named as the source."""

from trainmon.runtime.looks.nodes import Nodes
from trainmon.runtime.looks.service import Looks, Request

__all__ = ["Looks", "Nodes", "Request"]
