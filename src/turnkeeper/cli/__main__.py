"""`python -m turnkeeper.cli`: the command line without an installed script."""

from . import main

main()
