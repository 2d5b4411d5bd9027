"""The core of trainmon-tui: words, rules and the engine. It knows no terminal."""

__version__ = "0.1.0"
