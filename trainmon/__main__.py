"""`python -m trainmon` is `trainmon-tui`."""

from trainmon.cli import main

main()
