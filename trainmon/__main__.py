"""`python -m trainmon` is `trainmon-tui`."""

from trainmon.cli.main import main

main()
