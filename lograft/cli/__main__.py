"""``python -m lograft.cli``: the same as the ``lograft`` script."""

from lograft.cli import main

main()
