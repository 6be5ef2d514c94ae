"""The command line: ``metalwright COMMAND``; one module a command."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence

# about the inside of packages that we use: nothing that a user of the command line can act on
_WARNINGS_OF_OTHERS = (
    "coreai-torch has only been validated with torch",
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0: done, and everything is right. 1: a kernel is wrong, artifacts differ, or the doctor found something missing.
    2: the command could not be carried out; the reason is on standard error.
    """
    for message in _WARNINGS_OF_OTHERS:
        warnings.filterwarnings("ignore", message=message)
    from metalwright.cli.app import app
    from metalwright.errors import MetalwrightError

    try:
        app(args=list(sys.argv[1:] if arguments is None else arguments), prog_name="metalwright")
    except MetalwrightError as error:
        from metalwright.cli.output import show_error

        show_error(error)
        return 2
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 2
    return 0
