"""Changing the MSL inside an artifact, as nobody but a test does."""

from __future__ import annotations

from pathlib import Path

from coreai._compiler.ir import StringAttr
from coreai.authoring import AIModelAsset

from metalwright.coreai.inspect import operations


def edit_kernel(artifact: Path, edited: Path, kernel: str, old: str, new: str) -> int:
    """Save ``artifact`` as ``edited``, with one character of one kernel's source changed; return its launches.

    ``old`` occurs once in the source, and ``new`` differs from it in one character.
    """
    assert len(old) == len(new) and sum(a != b for a, b in zip(old, new, strict=True)) == 1
    program = AIModelAsset.load(artifact).program
    module = program._module._mlir_module
    launches = [
        op
        for op in operations(module.operation, "coreai.metal4_kernel")
        if op.opview.kernel_name.value.rpartition("_")[0] == kernel
    ]
    for op in launches:
        source = op.opview.kernel_source.value
        assert source.count(old) == 1, f"{old!r} is {source.count(old)} times in {kernel}"
        op.attributes["kernel_source"] = StringAttr.get(source.replace(old, new), context=module.context)
    program.save_asset(edited)
    return len(launches)
