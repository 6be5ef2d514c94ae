"""Processes of our own that must not take the user's down with them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

# Isolated and with the parent's path last: that may hold folders of users, who name their files as they like. The
# package is the parent's own, of which another version may be installed.
_PROGRAM = """
import importlib, importlib.util, json, sys
package, path, module, function = json.loads(sys.argv[1])
sys.path += path
spec = importlib.util.spec_from_file_location("metalwright", package)
sys.modules["metalwright"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["metalwright"])
getattr(importlib.import_module(module), function)()
"""
_PACKAGE = Path(__file__).parent / "__init__.py"


def command(module: str, function: str) -> list[str]:
    """Return the command of a process that calls a function of this package's."""
    return [sys.executable, "-I", "-c", _PROGRAM, json.dumps([str(_PACKAGE), sys.path, module, function])]
