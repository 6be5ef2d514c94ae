"""Tensors as the textures of a kernel.

A texture needs a pixel format. A plain tensor gets the one of its dtype, without any conversion: ``rgba32float`` for
float32 and four channels, ``r8uint`` for uint8 and one. Normalised formats, in which the bytes of a tensor are read
as numbers from 0 to 1, are asked for with :class:`Texture`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from metalwright import engine
from metalwright.engine import Parameter
from metalwright.errors import ArgumentError

_CHANNELS: Mapping[str, int] = {"r": 1, "rg": 2, "rgba": 4}
_PREFIXES: Mapping[int, str] = {count: prefix for prefix, count in _CHANNELS.items()}
# what a component of a pixel is: the dtype of the tensor that holds it, and the kind of texture that reads it
_COMPONENTS: Mapping[str, tuple[torch.dtype, str]] = {
    "32float": (torch.float32, "float"),
    "16float": (torch.float16, "float"),
    "8uint": (torch.uint8, "unsigned"),
    "16uint": (torch.uint16, "unsigned"),
    "32uint": (torch.uint32, "unsigned"),
    "8sint": (torch.int8, "signed"),
    "16sint": (torch.int16, "signed"),
    "32sint": (torch.int32, "signed"),
    "8unorm": (torch.uint8, "float"),
    "16unorm": (torch.uint16, "float"),
    "8snorm": (torch.int8, "float"),
    "16snorm": (torch.int16, "float"),
}
# the formats that keep a tensor's numbers come first above
_OWN = {dtype: component for component, (dtype, _) in reversed(_COMPONENTS.items())}
_READ_AS = {
    "f32": "float",
    "f16": "float",
    "si32": "signed",
    "si16": "signed",
    "ui32": "unsigned",
    "ui16": "unsigned",
}
_MSL = {"f32": "float", "f16": "half", "si32": "int", "si16": "short", "ui32": "uint", "ui16": "ushort"}
# dimensions of a texture in the order of a tensor's shape, without the channels
_SHAPES: Mapping[str, tuple[str, ...]] = {
    "texture1d": ("width",),
    "texture_buffer": ("width",),
    "texture1d_array": ("layers", "width"),
    "texture2d": ("height", "width"),
    "texture2d_array": ("layers", "height", "width"),
    "texture3d": ("depth", "height", "width"),
}
_MOST = 2**31 - 1


@dataclass(frozen=True)
class Texture:
    """A tensor with a pixel format, for ``textures=[…]`` in the call of a kernel.

    Attributes:
        tensor: The pixels, dense and on the CPU: the shape is that of the texture, as ``(height, width)`` for
            ``texture2d``, with a last dimension of 1, 2 or 4 channels or without one; a kernel's writes go to it.
        format: ``r``, ``rg`` or ``rgba``, followed by ``32float``, ``16float``, ``8unorm``, ``16unorm``, ``8snorm``,
            ``16snorm``, ``8uint``, ``16uint``, ``32uint``, ``8sint``, ``16sint`` or ``32sint``, as Metal names pixel
            formats; by default the float or integer format of the tensor's dtype.
    """

    tensor: torch.Tensor
    format: str | None = None


def bind(
    kernel: str, parameters: tuple[Parameter, ...], values: tuple[Any, ...]
) -> list[engine.Texture | None]:
    """Return the values as the kernel's textures, by their indices.

    Raises:
        ArgumentError: there are more or fewer than the kernel has, or one is not what its parameter takes.
    """
    by_index = {parameter.index: parameter for parameter in parameters if parameter.kind == "texture"}
    expected = max(by_index, default=-1) + 1
    if len(values) != expected:
        listed = ", ".join(f"{p.name} [[texture({i})]]" for i, p in sorted(by_index.items())) or "none"
        count = "1 texture" if expected == 1 else f"{expected} textures"
        raise ArgumentError(f"kernel {kernel!r} takes {count} ({listed}), got {len(values)}")
    return [
        None
        if value is None or index not in by_index
        else _texture(f"kernel {kernel!r}: texture {index}, {by_index[index].name!r}", by_index[index], value)
        for index, value in enumerate(values)
    ]


def _texture(where: str, parameter: Parameter, value: Any) -> engine.Texture:
    given = value if isinstance(value, Texture) else Texture(value)
    tensor = given.tensor
    if not isinstance(tensor, torch.Tensor):
        raise ArgumentError(f"{where}: expected a tensor or a Texture, got {type(tensor).__name__}")
    if tensor.device.type != "cpu" or tensor.layout != torch.strided or tensor.is_nested:
        raise ArgumentError(f"{where}: expected a dense CPU tensor, got {tensor.layout} on {tensor.device}")
    if not tensor.is_contiguous() or tensor.is_neg() or tensor.is_conj():
        raise ArgumentError(f"{where}: the pixels must lie without gaps: give the tensor as .contiguous()")
    size, channels = _size(where, parameter, tensor)
    component = _component(where, parameter, given, channels)
    names = _SHAPES[parameter.texture]
    by_name = dict(zip(names, size, strict=True))
    if tensor.untyped_storage().nbytes() < (
        (tensor.storage_offset() + tensor.numel()) * tensor.element_size()
    ):
        raise ArgumentError(f"{where}: the tensor's storage has been shrunk below its data")
    return engine.Texture(
        parameter.name,
        tensor.data_ptr(),
        (by_name["width"], by_name.get("height", 1), by_name.get("depth", by_name.get("layers", 1))),
        channels,
        component,
        tensor.numel() * tensor.element_size(),
        parameter.access in ("write", "read_write"),
    )


def _size(where: str, parameter: Parameter, tensor: torch.Tensor) -> tuple[tuple[int, ...], int]:
    """Return a texture's size in the order of the tensor's dimensions, and the number of channels."""
    names = _SHAPES[parameter.texture]
    shape = tuple(tensor.shape)
    size, rest = shape[: len(names)], shape[len(names) :]
    if len(size) != len(names) or len(rest) > 1:
        wanted = ", ".join(names)
        shapes = f"({wanted}) or ({wanted}, channels)"
        raise ArgumentError(
            f"{where} is a {parameter.texture}: expected a tensor of shape {shapes}, got {shape}"
        )
    channels = rest[0] if rest else 1
    if channels not in _PREFIXES:
        raise ArgumentError(f"{where}: a pixel has 1, 2 or 4 channels, got {channels} (shape {shape})")
    if not all(0 < extent <= _MOST for extent in size):
        raise ArgumentError(f"{where}: a texture has at least one pixel in each dimension, got shape {shape}")
    return size, channels


def _component(where: str, parameter: Parameter, given: Texture, channels: int) -> str:
    dtype = given.tensor.dtype
    if given.format is None:
        component = _OWN.get(dtype)
        if component is None:
            raise ArgumentError(f"{where}: Metal has no pixel format for {dtype}")
    else:
        component = given.format.lstrip("rgba")
        prefix = given.format.removesuffix(component)
        if component not in _COMPONENTS or prefix not in _CHANNELS:
            raise ArgumentError(f"{where}: expected a format such as 'rgba8unorm', got {given.format!r}")
        if _CHANNELS[prefix] != channels or _COMPONENTS[component][0] != dtype:
            needed = f"{_CHANNELS[prefix]} channels of {_COMPONENTS[component][0]}"
            raise ArgumentError(f"{where}: {given.format} is {needed}, the tensor has {channels} of {dtype}")
    name = _PREFIXES[channels] + component
    kind, wanted = _COMPONENTS[component][1], _READ_AS[parameter.element]
    msl = f"{parameter.texture}<{_MSL[parameter.element]}>"
    if kind != wanted:
        advice = ""
        if wanted == "float" and (normal := _normalised(dtype)):
            advice = f"; for numbers from 0 to 1 give metalwright.Texture(tensor, {_PREFIXES[channels] + normal!r})"
        raise ArgumentError(f"{where} is a {msl}, and the pixels are {name}: {kind} numbers{advice}")
    if component.startswith("32") and parameter.element in ("si16", "ui16"):
        raise ArgumentError(f"{where} is a {msl}, and the pixels are {name}: 32 bits do not fit")
    return component


def _normalised(dtype: torch.dtype) -> str | None:
    return next((c for c, (d, _) in _COMPONENTS.items() if d == dtype and c.endswith("norm")), None)
