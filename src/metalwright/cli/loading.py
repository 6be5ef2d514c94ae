"""Finding what the user means by ``FILE.py:NAME``."""

from __future__ import annotations

import functools
import importlib.util
import sys
import traceback
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import metalwright
from metalwright.errors import MetalwrightError

_PACKAGE = str(Path(metalwright.__file__).parent)


class TargetError(MetalwrightError):
    """The command line names a file or an object that is not there."""


class UserCodeError(MetalwrightError):
    """The user's own file raised; the message is the traceback through that file."""


@dataclass(frozen=True)
class Target:
    """A file or an artifact, and the name of something in it, if one was given."""

    path: Path
    name: str | None


def parse_target(text: str, suffixes: tuple[str, ...] = (".py",)) -> Target:
    """Split ``FILE[:NAME]``, where the file has one of the suffixes.

    Raises:
        TargetError: there is no such file, or it is of another kind.
    """
    path, name = Path(text), None
    if not path.is_file():
        front, colon, back = text.rpartition(":")
        # not at any colon: one may follow a drive letter
        if colon and (Path(front).is_file() or front.endswith(suffixes)):
            path, name = Path(front), back or None
    artifact = parse_artifact(text)
    if artifact and artifact.path.is_dir():
        raise TargetError(f"{artifact.path} is an artifact: run, verify, inspect and diff take those")
    expected = " or ".join(f"FILE{suffix}[:NAME]" for suffix in suffixes)
    if not path.is_file():
        raise TargetError(f"no such file: {path} (expected {expected})")
    if path.suffix not in suffixes:
        raise TargetError(f"{path} is not a {' or '.join(suffixes)} file (expected {expected})")
    return Target(path.resolve(), name)


def parse_artifact(text: str) -> Target | None:
    """Split ``X.aimodel[:FUNCTION]``; ``None`` if the text is about something else."""
    front, colon, back = text.rpartition(":")
    if colon and front.rstrip("/").endswith(".aimodel") and not Path(text).exists():
        return Target(Path(front), back or None)
    return Target(Path(text), None) if text.rstrip("/").endswith(".aimodel") else None


def function_of(target: Target, names: list[str]) -> str:
    """Return the function of an artifact that a target names; by default ``main``, or the only one.

    Raises:
        TargetError: there is none, or there are several and none is named.
    """
    listed = ", ".join(names) or "none"
    if target.name is None:
        if "main" in names or len(names) == 1:
            return "main" if "main" in names else names[0]
        raise TargetError(f"{target.path}: name the function, as X.aimodel:FUNCTION; it has {listed}")
    if target.name not in names:
        raise TargetError(f"{target.path}: has no function {target.name!r}; it has {listed}")
    return target.name


@functools.cache
def load(path: Path) -> ModuleType:
    """Import a file by its path, once, with its folder on ``sys.path`` as if it were run.

    Raises:
        UserCodeError: the file raised, or ended the program.
    """
    # a name that no package has: a file may be called like a module of the standard library
    name = f"_metalwright_user_{path.stem}_{zlib.crc32(str(path).encode()):08x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    with user_code(path):
        try:
            spec.loader.exec_module(module)
        except SystemExit as ended:
            raise UserCodeError(
                f"{path} ended the program (exit code {ended.code}) while it was imported; put what it does when "
                'it is run under: if __name__ == "__main__":'
            ) from ended
        except MetalwrightError as error:
            # the message says what is wrong; the traceback says which of the file's kernels it is about
            raise UserCodeError(_trace(path, error)) from error
    return module


@contextmanager
def user_code(path: Path) -> Iterator[None]:
    """Turn what the user's code raises inside the block into a :class:`UserCodeError` with its traceback.

    Our own errors pass, and so does anything that does not come from the file: that is a bug of ours.
    """
    try:
        yield
    except MetalwrightError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        if isinstance(error, SyntaxError) or any(_is(path, frame) for frame in frames):
            raise UserCodeError(_trace(path, error)) from error
        raise


def _trace(path: Path, error: Exception) -> str:
    report = traceback.TracebackException.from_exception(error)
    frames = list(report.stack)
    first = next((i for i, frame in enumerate(frames) if _is(path, frame)), len(frames))
    kept = [frame for frame in frames[first:] if not frame.filename.startswith(_PACKAGE)]
    report.stack = traceback.StackSummary.from_list(kept)
    # what our own package tried before is no help to the user
    report.__cause__ = report.__context__ = None
    text = "".join(report.format()).rstrip()
    return f"{path} raised {type(error).__name__}\n{text}"


def _is(path: Path, frame: traceback.FrameSummary) -> bool:
    return frame.filename == str(path)


def kernels(target: Target) -> dict[str, Any]:
    """Return the named kernel, or every kernel of the file, by attribute name.

    Raises:
        TargetError: there is none; says what there is.
    """
    from coreai_torch import TorchMetalKernel

    loaded = load(target.path)
    if target.name is None:
        found = _instances(loaded, TorchMetalKernel)
        if not found:
            raise TargetError(f"{target.path} defines no kernel (a MetalKernel as a module attribute)")
        return found
    value = _attribute(loaded, target)
    if not isinstance(value, TorchMetalKernel):
        raise TargetError(
            f"{target.path}:{target.name} is not a kernel but {_article(value)}; {_contents(loaded)}"
        )
    return {target.name: value}


def kernel(target: Target) -> Any:
    """Return the named kernel, or the only one of the file.

    Raises:
        TargetError: there is none, or the file has several and none is named.
    """
    found = kernels(target)
    if len(found) > 1:
        raise TargetError(f"{target.path} defines several kernels; name one: {', '.join(found)}")
    return next(iter(found.values()))


def module(target: Target) -> Any:
    """Return the named ``nn.Module``, an instance of the named class, or the only instance of the file.

    Raises:
        TargetError: there is none, or the file has several and none is named.
    """
    import torch

    loaded = load(target.path)
    if target.name is None:
        found = _instances(loaded, torch.nn.Module)
        if len(found) != 1:
            raise TargetError(f"{target.path}: name the module to use, as FILE.py:NAME; {_contents(loaded)}")
        return next(iter(found.values()))
    value = _attribute(loaded, target)
    if isinstance(value, type) and issubclass(value, torch.nn.Module):
        with user_code(target.path):
            try:
                return value()
            except TypeError as error:
                raise TargetError(
                    f"{target.path}:{target.name} cannot be made without arguments ({error}); "
                    "put an instance of it into the file and name that"
                ) from error
    if not isinstance(value, torch.nn.Module):
        raise TargetError(
            f"{target.path}:{target.name} is not an nn.Module but {_article(value)}; {_contents(loaded)}"
        )
    return value


def objects(target: Target) -> dict[str, Any]:
    """Return the named kernel or ``nn.Module``, or every kernel of the file, by attribute name."""
    if target.name is None:
        return kernels(target)
    value = _attribute(load(target.path), target)
    return {target.name: module(target)} if is_module(value) else kernels(target)


def is_module(value: Any) -> bool:
    """Whether this is an ``nn.Module`` or a class of them."""
    import torch

    return issubclass(value if isinstance(value, type) else type(value), torch.nn.Module)


def example_args(target: Target, value: Any) -> tuple[Any, ...]:
    """Return the ``example_args`` of an ``nn.Module``.

    Raises:
        TargetError: it has none.
    """
    given: Any = getattr(value, "example_args", None)
    if given is None:
        raise TargetError(
            f"{target.path}: {type(value).__name__} has no example_args: set them on it as a tuple of its inputs"
        )
    made: Any = given() if callable(given) else given
    return tuple(made)


def _instances(loaded: ModuleType, kind: type) -> dict[str, Any]:
    found: dict[int, tuple[str, Any]] = {}
    for name, value in vars(loaded).items():
        if isinstance(value, kind):
            found.setdefault(id(value), (name, value))
    return dict(found.values())


def _attribute(loaded: ModuleType, target: Target) -> Any:
    assert target.name is not None
    try:
        return functools.reduce(getattr, target.name.split("."), loaded)
    except AttributeError:
        raise TargetError(f"{target.path} has no {target.name!r}; {_contents(loaded)}") from None


def _contents(loaded: ModuleType) -> str:
    import torch
    from coreai_torch import TorchMetalKernel

    found = _instances(loaded, TorchMetalKernel)
    modules = _instances(loaded, torch.nn.Module)
    parts = [f"its kernels: {', '.join(found)}" if found else "it defines no kernel"]
    if modules:
        parts.append(f"its modules: {', '.join(modules)}")
    return "; ".join(parts)


def _article(value: Any) -> str:
    kind = type(value).__name__
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"
