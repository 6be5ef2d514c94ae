"""Puts into words what checked mode caught."""

from __future__ import annotations

from collections.abc import Sequence

from metalwright.engine import abi
from metalwright.engine.types import Argument, Buffer, KernelSignature, Module, Texture
from metalwright.errors import BarrierFault, KernelFault, MemoryFault, Site

_CLOSE_BYTES = 64 * 1024
_ALL_ENDED = 0xFFFFFFFF


def explain(
    fault: abi.FaultStruct,
    module: Module,
    signature: KernelSignature,
    sites: Sequence[Site | None],
    arguments: Sequence[Argument | None],
) -> KernelFault:
    """Return the exception for a fault that the runtime recorded."""
    site = sites[fault.site] if fault.site < len(sites) else None
    kind = BarrierFault if fault.kind == abi.FAULT_BARRIER else MemoryFault
    if fault.kind in (abi.FAULT_TRAP, abi.FAULT_DIVISION, abi.FAULT_LANES, abi.FAULT_SCOPE, abi.FAULT_DEPTH):
        kind = KernelFault
    return kind(
        _message(fault, module, signature, sites, arguments),
        kernel=module.label,
        site=site,
        excerpt=module.excerpt(site),
        thread=(fault.position[0], fault.position[1], fault.position[2]),
    )


def _message(
    fault: abi.FaultStruct,
    module: Module,
    signature: KernelSignature,
    sites: Sequence[Site | None],
    arguments: Sequence[Argument | None],
) -> str:
    verb = "writes" if fault.write else "reads"
    argument = arguments[fault.object] if fault.object < len(arguments) else None
    name = argument.name if argument is not None else ""
    if fault.kind == abi.FAULT_BUFFER and argument is not None:
        return f"{verb} {_element(fault, argument)}"
    if fault.kind == abi.FAULT_READ_ONLY:
        return f"writes to {name!r}, which is an input" if name else "writes to a constant"
    if fault.kind == abi.FAULT_MISALIGNED:
        return f"{verb} {fault.size} bytes at an address that is not a multiple of {fault.object}, as their type needs"
    if fault.kind == abi.FAULT_WILD and (near := _nearest(fault, arguments)) is not None:
        fault.offset -= near.address
        fault.object_bytes = near.nbytes
        return f"{verb} {_element(fault, near)}"
    if fault.kind == abi.FAULT_WILD:
        return f"{verb} {fault.size} bytes through a pointer to nothing that a thread may touch"
    if fault.kind == abi.FAULT_BARRIER:
        return _barrier(fault, sites)
    if fault.kind == abi.FAULT_TRAP:
        return "reaches code that must not be reached: a function that returns a value ends without one"
    if fault.kind == abi.FAULT_DIVISION:
        return "divides an integer by zero, which gives anything on a GPU"
    if fault.kind == abi.FAULT_LANES:
        return (
            f"multiplies or reduces matrices with {fault.object.bit_count()} of a simdgroup's 32 lanes: all must take "
            "part, in a branch that they take together and in a threadgroup of a multiple of 32 threads"
        )
    if fault.kind == abi.FAULT_SCOPE:
        wanted = "a multiple of 32" if fault.object == 1 else f"{32 * fault.object}"
        scope = "execution_simdgroup" if fault.object == 1 else f"execution_simdgroups<{fault.object}>"
        there = f"in a threadgroup of {fault.size} threads"
        return f"runs a tensor operation of {scope} {there}: it needs {wanted}"
    if fault.kind == abi.FAULT_DEPTH:
        function = module.recursive_functions[fault.object]
        return f"function {function!r} calls itself more than {fault.size} deep, as recursion={fault.size} allows"
    names = [variable.name for variable in module.threadgroup_variables]
    parameters = {p.index: p.name for p in signature.parameters if p.kind == "threadgroup"}
    what = {
        abi.FAULT_THREADGROUP_ARGUMENT: f"the threadgroup memory {parameters.get(fault.object, '')!r} "
        f"[[threadgroup({fault.object})]]",
        abi.FAULT_THREADGROUP: f"the threadgroup variable {names[fault.object]!r}"
        if fault.object < len(names)
        else "",
        abi.FAULT_PRIVATE: "a private variable",
        abi.FAULT_CONSTANT: "a constant",
    }[fault.kind]
    far = _how_far(fault.offset, fault.object_bytes)
    return f"{verb} {fault.size} bytes, {far} of {what}, which has {fault.object_bytes} bytes"


def _nearest(fault: abi.FaultStruct, arguments: Sequence[Argument | None]) -> Buffer | None:
    """Return the buffer that a stray pointer most likely left: the closest, where one is close at all."""

    def distance(buffer: Buffer) -> int:
        return max(buffer.address - fault.offset, fault.offset - (buffer.address + buffer.nbytes), 0)

    buffers = [argument for argument in arguments if isinstance(argument, Buffer)]
    close = [buffer for buffer in buffers if distance(buffer) < _CLOSE_BYTES]
    return min(close, key=distance, default=None)


def _element(fault: abi.FaultStruct, argument: Argument) -> str:
    if not isinstance(argument, Buffer):
        kind = "texture" if isinstance(argument, Texture) else "scalar"
        return (
            f"{fault.size} bytes {_how_far(fault.offset, fault.object_bytes)} of the {kind} {argument.name!r}"
        )
    count = 1
    for extent in argument.extents:
        count *= extent
    width = argument.nbytes // count if count else 1
    index = fault.offset // max(width, 1)
    shape = tuple(reversed(argument.extents))
    return (
        f"element {index} of {argument.name!r}, which has {count} (shape {shape}): "
        f"{_how_far(fault.offset, fault.object_bytes)} of its {fault.object_bytes} bytes"
    )


def _how_far(offset: int, size: int) -> str:
    if offset < 0:
        return f"{-offset} bytes before the start"
    if offset == size:
        return "just past the end"
    return f"{offset - size} bytes past the end" if offset > size else f"at byte {offset}, across the end"


def _barrier(fault: abi.FaultStruct, sites: Sequence[Site | None]) -> str:
    if fault.other_site == _ALL_ENDED:
        return "waits at this barrier, but other threads of its threadgroup have ended: all must meet the same barrier"
    other = sites[fault.other_site]
    if other is not None and other == sites[fault.site]:
        return (
            "waits at this barrier, but others of its threadgroup wait at another copy of it (of another instantiation "
            "of a template, or another call of the function): all must meet the same one"
        )
    other = other or "another"
    return f"waits at this barrier, but others of its threadgroup wait at {other}: all must meet the same one"
