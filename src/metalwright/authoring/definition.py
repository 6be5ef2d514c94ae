"""Checks of a kernel's definition: everything that can be known before the kernel is called."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from coreai.authoring import MetalParameter
from coreai.authoring.metal import PARAMETER_LIMIT

from metalwright.authoring import attributes, names
from metalwright.errors import KernelDefinitionError, KernelSignatureError, MetalwrightError

MATH_MODES = ("safe", "fast")
_SCALARS = (int, float, bool)
# operands that the PyTorch operator has beside the reference's own parameters
_OPERANDS = ("threads_per_grid", "threads_per_thread_group")


def check_names(name: object, input_names: Any, result_names: Any, metal_params: Any) -> None:
    """Check every name that goes into the generated MSL, alone and against the others.

    Raises :class:`KernelDefinitionError`.
    """
    if problem := names.kernel_problem(name):
        raise KernelDefinitionError(f"kernel {name!r}: name: {problem}")
    groups = [("input_names", input_names), ("result_names", result_names)]
    for label, group in groups:
        if isinstance(group, str) or not isinstance(group, Sequence):
            raise KernelDefinitionError(
                f"kernel {name!r}: {label}: expected a list of strings, got {group!r}"
            )
    if not result_names:
        raise KernelDefinitionError(f"kernel {name!r}: result_names must contain at least one entry")
    seen: dict[str, str] = {}
    parameters = [*(("input_names", n) for n in input_names), *(("result_names", n) for n in result_names),
                  *((f"metal_params[{i}]", p.name) for i, p in enumerate(metal_params))]  # fmt: skip
    for label, parameter in parameters:
        if problem := names.parameter_problem(parameter):
            raise KernelDefinitionError(f"kernel {name!r}: {label}: {problem}")
        if parameter in seen:
            also = "twice" if seen[parameter] == label else f"also in {seen[parameter]}"
            raise KernelDefinitionError(
                f"kernel {name!r}: {label}: {parameter!r} is {also}; names must differ"
            )
        seen[parameter] = label


def check_texts(name: str, src: object, helper_src: object) -> None:
    """Check that the MSL is text. Raises :class:`KernelDefinitionError`."""
    if not isinstance(src, str):
        raise KernelDefinitionError(f"kernel {name!r}: src: expected the MSL of the body, got {src!r}")
    if helper_src is not None and not isinstance(helper_src, str):
        raise KernelDefinitionError(f"kernel {name!r}: helper_src: expected MSL or None, got {helper_src!r}")


def check_metal_params(name: object, metal_params: Any) -> list[MetalParameter]:
    """Check the attribute and type of each Metal parameter and return them as a list.

    Raises :class:`KernelDefinitionError`.
    """
    if metal_params is None:
        return []
    if isinstance(metal_params, (str, MetalParameter)) or not isinstance(metal_params, Sequence):
        raise KernelDefinitionError(
            f"kernel {name!r}: metal_params: expected a list of MetalParameter, got {metal_params!r}"
        )
    vectors: dict[int, str] = {}
    for position, parameter in enumerate(metal_params):
        where = f"kernel {name!r}: metal_params[{position}]"
        if not isinstance(parameter, MetalParameter):
            raise KernelDefinitionError(f"{where}: expected a MetalParameter, got {parameter!r}")
        if problem := attributes.parameter_problem(parameter.dtype, parameter.attr):
            raise KernelDefinitionError(f"{where} ({parameter.name!r}): {problem}")
        count = attributes.components(parameter.dtype) or 1
        if count > 1:
            vectors.setdefault(count, f"{parameter.dtype} {parameter.name} [[{parameter.attr}]]")
    if len(vectors) > 1:
        # the specification: where these are vectors, all have the same number of components
        raise KernelDefinitionError(
            f"kernel {name!r}: metal_params: position and size vectors must have the same number of components, "
            f"got {' and '.join(vectors.values())}"
        )
    return list(metal_params)


def check_parameter_count(name: str, inputs: int, results: int, metal: int) -> None:
    """Check the number of parameters as Core AI counts them. Raises :class:`KernelDefinitionError`."""
    total = inputs + results + metal
    if total > PARAMETER_LIMIT:
        raise KernelDefinitionError(
            f"kernel {name!r}: a kernel has at most {PARAMETER_LIMIT} parameters, got {total} "
            f"({inputs} inputs, {results} results, {metal} metal_params)"
        )


def check_templates(name: str, template_dtypes: Any, input_names: Sequence[str]) -> None:
    """Check the dtype placeholders. Raises :class:`KernelDefinitionError`."""
    if template_dtypes is None:
        return
    if not isinstance(template_dtypes, dict):
        raise KernelDefinitionError(
            f"kernel {name!r}: template_dtypes: expected a dict of input name to placeholder, got {template_dtypes!r}"
        )
    for key, placeholder in template_dtypes.items():
        if key not in input_names:
            raise KernelDefinitionError(
                f"kernel {name!r}: template_dtypes: {key!r} is not an input; the inputs are {list(input_names)}"
            )
        if not isinstance(placeholder, str) or not placeholder:
            raise KernelDefinitionError(
                f"kernel {name!r}: template_dtypes[{key!r}]: expected a placeholder, got {placeholder!r}"
            )


def check_reference(name: str, torch_defn: Any, input_names: Sequence[str]) -> None:
    """Check the reference's signature, parameter by parameter, before the parent class does as a whole.

    Raises :class:`KernelSignatureError` for types, :class:`KernelDefinitionError` for counts.
    """
    if not callable(torch_defn):
        raise KernelSignatureError(f"kernel {name!r}: torch_defn: expected a function, got {torch_defn!r}")
    signature = inspect.signature(torch_defn, eval_str=True)
    for parameter in signature.parameters.values():
        where = f"kernel {name!r}: parameter {parameter.name!r} of the reference"
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            raise KernelSignatureError(f"{where}: a kernel takes no variadic parameters (*args, **kwargs)")
        if parameter.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
            raise KernelDefinitionError(
                f"{where} is {parameter.kind.description}; expected an ordinary parameter"
            )
        if parameter.annotation is inspect.Parameter.empty:
            raise KernelSignatureError(
                f"{where} has no annotation; expected torch.Tensor, int, float or bool"
            )
        if parameter.annotation is not torch.Tensor and parameter.annotation not in _SCALARS:
            raise KernelSignatureError(
                f"{where}: expected torch.Tensor, int, float or bool, got {_shown(parameter.annotation)}"
            )
        if parameter.default is not inspect.Parameter.empty:
            raise KernelDefinitionError(
                f"{where} has a default, {parameter.default!r}; a kernel's inputs have none"
            )
        if parameter.name in _OPERANDS or parameter.name.startswith("result_shape_"):
            raise KernelDefinitionError(f"{where}: Core AI adds an operand of this name; choose another")
    if len(signature.parameters) != len(input_names):
        raise KernelDefinitionError(
            f"kernel {name!r}: the reference has {len(signature.parameters)} parameters "
            f"({', '.join(signature.parameters)}), input_names has {len(input_names)} ({', '.join(input_names)})"
        )
    if signature.return_annotation is inspect.Signature.empty:
        raise KernelSignatureError(
            f"kernel {name!r}: the reference has no return annotation; expected torch.Tensor, "
            f"list[torch.Tensor] or tuple[torch.Tensor, ...] with one entry a result"
        )


def option_problem(math_mode: object, checked: object, recursion: object = 0) -> str | None:
    """Say what is wrong with Metalwright's own options, or return ``None``."""
    if math_mode not in MATH_MODES:
        return f"math_mode: expected 'safe' or 'fast', got {math_mode!r}"
    if not isinstance(checked, bool):
        return f"checked: expected True or False, got {checked!r}"
    if not isinstance(recursion, int) or isinstance(recursion, bool) or recursion < 0:
        return f"recursion: expected how many calls may be nested, got {recursion!r}"
    return None


@contextmanager
def translated(name: object) -> Iterator[None]:
    """Raise what the parent class and ``torch.library`` refuse as our own errors, with the kernel's name."""
    try:
        yield
    except MetalwrightError:
        raise
    except TypeError as error:
        raise KernelSignatureError(f"kernel {name!r}: {error}") from error
    except (NameError, AttributeError) as error:
        raise KernelSignatureError(f"kernel {name!r}: an annotation of the reference: {error}") from error
    except (ValueError, RuntimeError) as error:
        raise KernelDefinitionError(f"kernel {name!r}: {error}") from error


def _shown(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)
