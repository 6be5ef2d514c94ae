"""``python -m metalwright`` is the command line."""

import sys

from metalwright.cli import main

if __name__ == "__main__":
    sys.exit(main())
