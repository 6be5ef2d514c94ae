"""Code that others wrote, run here. It takes minutes, so it runs only by ``make test-thirdparty``."""

from __future__ import annotations

import os

if not os.environ.get("METALWRIGHT_THIRDPARTY"):
    collect_ignore_glob = ["*"]
