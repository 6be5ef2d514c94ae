"""A program that shows a wrong case again: it imports the kernel, makes these exact inputs and checks them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from metalwright.check.cases import Case
from metalwright.check.simple import Value
from metalwright.check.tolerance import DEFAULTS, Tolerance


def program(
    kernel: Any,
    case: Case,
    inputs: Sequence[Value],
    tolerances: Mapping[torch.dtype, Tolerance],
    **options: Any,
) -> str | None:
    """Return a ready-to-run program; ``None`` where an input is too large to be written down.

    ``options`` are further arguments of ``check``.
    """
    texts = [value.text for value in inputs]
    if None in texts:
        return None
    modules, definition = _kernel(kernel)
    lines = [*(f"import {module}" for module in modules), *([""] if modules else [])]
    lines += ["import torch", "", "import metalwright"]
    if any("random(" in str(text) for text in texts):
        lines.append("from metalwright.check import random")
    lines += ["", *definition, ""]
    if any(word in str(text) for text in texts for word in ("inf", "nan")):
        # as PyTorch's tolist() writes them
        lines += ['inf, nan = float("inf"), float("nan")']
    lines += ["case = {", '    "inputs": [']
    lines += [f"        {text},  # {name}" for name, text in zip(kernel.input_names, texts, strict=True)]
    lines += [
        "    ],",
        f'    "threads_per_grid": {case.threads_per_grid},',
        f'    "threads_per_thread_group": {case.threads_per_thread_group},',
        f'    "result_shapes": {[list(shape) for shape in case.result_shapes]},',
        "}",
    ]
    own = {
        str(dtype): (tolerance.rtol, tolerance.atol)
        for dtype, tolerance in tolerances.items()
        if DEFAULTS.get(dtype) != tolerance
    }
    if own:
        options["tolerances"] = own
    arguments = "".join(f", {name}={_show(value)}" for name, value in options.items())
    lines += [f"report = metalwright.check(kernel, [case]{arguments})", "print(report)"]
    lines += ["raise SystemExit(not report.ok)"]
    return "\n".join(lines) + "\n"


def _show(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {entry}" for key, entry in value.items()) + "}"
    return _quoted(value) if isinstance(value, str) else repr(value)


def _kernel(kernel: Any) -> tuple[list[str], list[str]]:
    """Return the modules that are needed to get at the kernel, and the lines that do."""
    found = _module_of(kernel)
    if found is None:
        return [], [f"# here the definition of `kernel`, or its import: it is called {kernel.name!r}"]
    module, name = found
    path = Path(str(module.__file__)).resolve()
    package = getattr(module, "__package__", None) or ""
    if package and module.__name__ != "__main__":
        # in a package a file may import its neighbours relatively
        root = path.parents[module.__name__.count(".") + (path.name == "__init__.py")]
        imported = f"importlib.import_module({_quoted(module.__name__)}).{name}"
        return ["importlib", "sys"], [f"sys.path.insert(0, {_quoted(root)})", f"kernel = {imported}"]
    ran = f"runpy.run_path({_quoted(path)})[{_quoted(name)}]"
    return ["runpy", "sys"], [f"sys.path.insert(0, {_quoted(path.parent)})", f"kernel = {ran}"]


def _quoted(text: object) -> str:
    return json.dumps(str(text))


def _module_of(kernel: Any) -> tuple[ModuleType, str] | None:
    """Return the module of a file that has the kernel, and the kernel's name in it."""
    # a script that was started and imports the kernel from a module has it too: the module comes first
    for module in sorted(sys.modules.values(), key=lambda module: module is sys.modules.get("__main__")):
        path = getattr(module, "__file__", None) if isinstance(module, ModuleType) else None
        if not path or not str(path).endswith(".py") or not Path(path).is_file():
            continue
        for name, value in list(vars(module).items()):
            if value is kernel:
                return module, name
    return None
