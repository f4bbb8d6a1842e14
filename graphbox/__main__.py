"""`python -m graphbox` is the command line."""

import sys

from graphbox.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
