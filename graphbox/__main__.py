"""``python -m graphbox`` is the ``graphbox`` command."""

from graphbox.cli.app import main

main()
