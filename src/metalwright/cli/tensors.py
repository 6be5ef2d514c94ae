"""Tensors from and to files, and drawn from a seed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from metalwright.errors import ArgumentError

SUFFIXES = (".npy", ".pt", ".safetensors")
_INTEGERS_BELOW = 100


def draw(shape: tuple[int, ...], dtype: Any, seed: int) -> Any:
    """Return a tensor of normal floats, of whole numbers from 0 to 99, or of bools."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    high = 2 if dtype == torch.bool else _INTEGERS_BELOW
    return torch.randint(0, high, shape, generator=generator).to(dtype)


def read(where: str, path: Path, name: str | None = None) -> Any:
    """Return the tensor in a ``.npy``, ``.pt`` or ``.safetensors`` file.

    Args:
        where: What an error begins with.
        path: The file.
        name: Which tensor of a file with several.

    Raises:
        ArgumentError: The file cannot be read, or holds something else.
    """
    import torch

    try:
        if path.suffix == ".npy":
            loaded = _from_numpy(path)
        elif path.suffix == ".pt":
            loaded = torch.load(path, weights_only=True)
        else:
            from safetensors.torch import load_file

            loaded = load_file(path)
    except FileNotFoundError as error:
        raise ArgumentError(f"{where}: there is no file {path}") from error
    except Exception as error:
        raise ArgumentError(f"{where}: {path.name} cannot be read: {error}") from error
    if isinstance(loaded, dict):
        loaded = _choose(where, path, loaded, name)
    if not isinstance(loaded, torch.Tensor):
        raise ArgumentError(f"{where}: expected a tensor in the file, got {type(loaded).__name__}")
    return loaded.contiguous()


def _from_numpy(path: Path) -> Any:
    import numpy as np
    import torch

    return torch.from_numpy(np.load(path, allow_pickle=False))


def _choose(where: str, path: Path, loaded: Mapping[str, Any], name: str | None) -> Any:
    if name is not None and name in loaded:
        return loaded[name]
    if len(loaded) == 1:
        return next(iter(loaded.values()))
    raise ArgumentError(
        f"{where}: {path.name} has no tensor {name!r}; it has {', '.join(map(str, loaded)) or 'none'}"
    )


def write(where: str, path: Path, values: Mapping[str, Any]) -> None:
    """Write tensors by name to a file; ``.npy`` and ``.pt`` hold one, ``.safetensors`` any number.

    Raises:
        ArgumentError: The file cannot be written, or its format has no place for them.
    """
    import torch

    if path.suffix != ".safetensors" and len(values) > 1:
        raise ArgumentError(
            f"{where}: {path.name} is given for {' and '.join(values)}: only a .safetensors file holds several"
        )
    value = next(iter(values.values()))
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import save_file

            save_file({name: tensor.contiguous() for name, tensor in values.items()}, path)
        elif path.suffix == ".pt":
            torch.save(value, path)
        else:
            _to_numpy(where, path, value)
    except ArgumentError:
        raise
    except Exception as error:
        raise ArgumentError(f"{where}: {path} cannot be written: {error}") from error


def _to_numpy(where: str, path: Path, value: Any) -> None:
    import numpy as np
    import torch

    if value.dtype == torch.bfloat16:
        raise ArgumentError(f"{where}: NumPy's format has no bfloat16: use .pt or .safetensors")
    np.save(path, value.numpy())
