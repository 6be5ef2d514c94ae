"""Is this call being traced (``torch.export``, ``torch.compile``, fake tensors), or does it have real data?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

# what says that a tensor or a call is traced is in PyTorch's private parts, which have no type stubs
_torch: Any = torch
_C: Any = torch._C

_PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)
_TRACING_MODES = (
    _C._TorchDispatchModeKey.FAKE,
    _C._TorchDispatchModeKey.PROXY,
    _C._TorchDispatchModeKey.FUNCTIONAL,
)
_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_DISABLED_DISPATCH = _torch.Tensor.__torch_dispatch__


def in_dynamo() -> bool:
    """True while TorchDynamo reads the Python code itself (then this is a constant to it)."""
    return torch.compiler.is_dynamo_compiling()


def is_traced(values: Iterable[Any]) -> bool:
    """True if a call with these inputs must not run the MSL: it is traced, or its tensors have no data."""
    if torch.compiler.is_compiling() or torch.compiler.is_exporting() or _torch.jit.is_tracing():
        return True
    if _C._len_torch_dispatch_stack() and any(
        _C._get_dispatch_mode(mode) is not None for mode in _TRACING_MODES
    ):
        return True
    if _C._functorch.peek_interpreter_stack() is not None:
        return True
    return any(_is_symbolic(value) for value in values)


def is_observed() -> bool:
    """True if a user's dispatch mode (a profiler, a counter) is active and expects to see an operator."""
    return _C._len_torch_dispatch_stack() > 0


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        if value.device.type == "meta" or _torch._is_functional_tensor(value):
            return True
        kind: Any = type(value)
        # a subclass with its own dispatch (fake, quantised, nested) decides for itself what an operator does
        return kind not in _PLAIN_TYPES and kind.__torch_dispatch__ is not _DISABLED_DISPATCH
    return isinstance(value, _SYMBOLS)
