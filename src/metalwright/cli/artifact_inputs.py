"""``--input`` and ``--shape`` of ``metalwright run X.aimodel``: a tensor for each input of a function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metalwright.cli import shapes, tensors
from metalwright.errors import ArgumentError

_EXPECTED = "a .npy, .pt or .safetensors file, or random[:SEED]"


@dataclass(frozen=True)
class Given:
    """The tensors of a function's inputs, those that are given for its states, and the inputs that were drawn."""

    inputs: dict[str, Any]
    states: dict[str, Any]
    drawn: dict[str, int]


def gather(function: Any, options: Sequence[str] | None, sizes: Sequence[str] | None, seed: int) -> Given:
    """Read or draw every input; what no ``--input`` names is drawn from the seed.

    Raises:
        ArgumentError: An option cannot be read or names nothing that the function has, or a size is missing.
    """
    texts = named("--input", options)
    infos = {info.name: info for info in function.inputs}
    states = {info.name: info for info in function.states}
    for name in texts:
        if name not in infos and name not in states:
            has = ", ".join([*infos, *(f"{state} (a state)" for state in states)]) or "none"
            raise ArgumentError(f"--input {name}: function {function.name!r} has no such input; it has {has}")
    for name, info in states.items():
        if "?" in info.shape and name not in texts:
            raise ArgumentError(
                f"state {name!r} of function {function.name!r} has shape [{', '.join(map(str, info.shape))}], so it "
                f"cannot begin as zeros: give it with --input {name}=FILE"
            )
    shape_of = _Shapes(function, sizes)
    drawn: dict[str, int] = {}

    def make(info: Any, text: str) -> Any:
        word, _, number = text.partition(":")
        if word == "random" and (number.isdecimal() or not number):
            drawn[info.name] = int(number or seed)
            return _draw(info, shape_of, drawn[info.name])
        where = f"--input {info.name}={text}"
        if not text.endswith(tensors.SUFFIXES):
            raise ArgumentError(f"{where}: expected {_EXPECTED}")
        return tensors.read(where, Path(text), info.name)

    inputs = {name: make(info, texts.get(name, f"random:{seed}")) for name, info in infos.items()}
    held = {name: make(states[name], text) for name, text in texts.items() if name in states}
    shape_of.check_used()
    return Given(inputs, held, drawn)


def named(option: str, given: Sequence[str] | None) -> dict[str, str]:
    """Return ``NAME=VALUE`` options by name.

    Raises:
        ArgumentError: One has another form, or a name comes twice.
    """
    found: dict[str, str] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise ArgumentError(f"{option} {text}: expected NAME=VALUE")
        if name in found:
            raise ArgumentError(f"{option} {text}: {name} is given twice")
        found[name] = value
    return found


class _Shapes:
    """``--shape``: ``NAME=7,64`` for one input, ``7,64`` for every other one that is drawn and has a ``?``."""

    def __init__(self, function: Any, given: Sequence[str] | None) -> None:
        self._function = function
        bare = [text for text in given or () if "=" not in text]
        if len(bare) > 1:
            raise ArgumentError("--shape: give one shape for all inputs, or NAME=SHAPE for each")
        self._all = shapes.parse_shape(bare[0]) if bare else None
        by_name = named("--shape", [text for text in given or () if "=" in text])
        self._by_name = {name: shapes.parse_shape(text) for name, text in by_name.items()}
        self._drawn: set[str] = set()
        self._idle = self._all is not None
        known = [info.name for info in (*function.inputs, *function.states)]
        if strangers := [name for name in by_name if name not in known]:
            raise ArgumentError(
                f"--shape {strangers[0]}: function {function.name!r} has no such input; it has {', '.join(known)}"
            )

    def of(self, info: Any) -> tuple[int, ...]:
        dynamic = "?" in info.shape
        chosen = self._by_name.get(info.name, self._all if dynamic else None)
        self._drawn.add(info.name)
        if self._all in (chosen, info.shape):
            self._idle = False
        wanted = ", ".join(map(str, info.shape))
        if chosen is None:
            if dynamic:
                raise ArgumentError(
                    f"input {info.name!r} of function {self._function.name!r} has shape [{wanted}]: say how large it "
                    f"is to be with --shape {info.name}=..., or give it with --input {info.name}=FILE"
                )
            return info.shape
        fits = len(chosen) == len(info.shape) and all(
            extent in ("?", size) for extent, size in zip(info.shape, chosen, strict=True)
        )
        if not fits:
            raise ArgumentError(f"--shape: input {info.name!r} has shape [{wanted}], got {list(chosen)}")
        return chosen

    def check_used(self) -> None:
        """Raise :class:`ArgumentError` if a size is given that no input was drawn with."""
        if strangers := [name for name in self._by_name if name not in self._drawn]:
            raise ArgumentError(f"--shape {strangers[0]}: it is not drawn: --input says what it is")
        if self._idle:
            infos = self._function.inputs
            sizes = "; ".join(f"{info.name} has shape [{', '.join(map(str, info.shape))}]" for info in infos)
            raise ArgumentError(f"--shape: no random input has a size to choose: {sizes or 'there is none'}")


def _draw(info: Any, shape_of: _Shapes, seed: int) -> Any:
    from metalwright.authoring.dtypes import BY_NAME
    from metalwright.check.inputs import seed_for

    row = BY_NAME.get(info.dtype)
    if row is None:
        raise ArgumentError(f"input {info.name!r} is of {info.dtype}, which cannot be drawn: give it a file")
    shape = shape_of.of(info)
    try:
        # by name too: inputs of one shape and seed are not to be equal
        return tensors.draw(shape, row.torch, seed_for(seed, info.name))
    except (RuntimeError, TypeError, OverflowError) as error:
        raise ArgumentError(
            f"input {info.name!r}: a tensor of shape {list(shape)} is too large for this machine"
        ) from error


def shown(drawn: Mapping[str, int]) -> list[str]:
    """Return a line for each input that was drawn."""
    return [f"input {name}: random, seed {seed}" for name, seed in drawn.items()]
