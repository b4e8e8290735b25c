"""Run the command line as ``python -m keyhole``."""

from keyhole.cli import main

main()
