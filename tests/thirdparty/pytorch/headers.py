"""What PyTorch's headers define: kernels, and the functions that a shader may call."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import torch

INCLUDE = Path(torch.__file__).parent / "include"
FOLDERS = ("c10/metal", "ATen/native/mps/kernels")
HEADERS = tuple(
    path.relative_to(INCLUDE).as_posix()
    for folder in FOLDERS
    for path in sorted((INCLUDE / folder).glob("*.h"))
)
_KERNEL = re.compile(r"(?:\bkernel|\[\[kernel[^\n]*\]\])\s+void\s+(\w+)\(")
_FUNCTION = re.compile(
    r"^(?:static |inline |constexpr )*(?:::metal::\s*)?(?:enable_if_t<[^;{}]*?>,? *)?[\w:<>, ]+?[\s&*]+"
    r"(\w+)\((?=[^;{}]*\)\s*(?:\{|$))",
    re.MULTILINE,
)
# parts of the functions beside them, and what the pattern takes for a function
_PARTS = {
    *("chbevl", "lim", "calc_digamma_positive_domain", "getHermitianLimit", "erfcx_y100", "expm1f_scaled_unchecked"),
    *("lgamma", "expm1", "ratevl", "lanczos_sum_expg_scaled", "calc_igamma", "calc_igammac", "powi_impl", "safe_mod"),
    *("uint32_to_uniform_float", "splitlong", "mulhilo", "single_round", "multiple_rounds", "box_muller_from_philox"),
    *("atomic_binary_op_helper", "atomic_add_helper", "simd_reduce", "threadgroup_reduce", "sizeof", "if", "ceil_div"),
    *("round_up", "offset_from_coord", "pos_from_thread_index", "offset_from_thread_index", "val_at_offs"),
    *("ref_at_offs", "store_at_offs", "simd_broadcast", "operator", "_"),
}  # fmt: skip
_MACRO = re.compile(r"[A-Z0-9_]+")


def short(header: str) -> str:
    """Return a header's name as the scoreboard has it."""
    return header.removeprefix("c10/metal/")


@functools.cache
def defined(header: str) -> tuple[str, ...]:
    """Return the kernels that a header defines, and the functions where it is one of functions."""
    text = (INCLUDE / header).read_text()
    kernels = _KERNEL.findall(text)
    functions = _FUNCTION.findall(text) if header.startswith("c10/metal") else []
    names = [*kernels, *(name for name in functions if name not in _PARTS and not name.startswith("_"))]
    return tuple(dict.fromkeys(name for name in names if not _MACRO.fullmatch(name)))


@functools.cache
def where(function: str) -> str | None:
    """Return the header of ``c10/metal`` that defines a function."""
    return next((short(h) for h in HEADERS if h.startswith("c10/metal") and function in defined(h)), None)
