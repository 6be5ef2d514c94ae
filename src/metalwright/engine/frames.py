"""How much stack a kernel's machine code takes: read off the instructions that make room for its frames.

LLVM does not tell through llvmlite, and a fiber's stack has no neighbour that may be written. Everything is inlined
into one function, whose prologue subtracts the frame from the stack pointer; a number that only looks like such an
instruction makes the stack larger than it needs to be, which costs nothing.
"""

from __future__ import annotations

import platform
import re
import struct

# x86-64: sub rsp, imm32
_X86_SUBTRACT = re.compile(rb"\x48\x81\xec(....)", re.DOTALL)
# a frame past this is no frame: the engine's limit on private memory is far below it
_LARGEST = 1 << 26


def largest_frame(machine_code: bytes, processor: str | None = None) -> int:
    """Return the largest frame, in bytes, that the code makes room for at once (0 where all are small)."""
    processor = processor or platform.machine()
    sizes = _arm64_frames(machine_code) if processor in ("arm64", "aarch64") else _x86_frames(machine_code)
    return max((size for size in sizes if 0 < size <= _LARGEST), default=0)


def _x86_frames(code: bytes) -> list[int]:
    return [struct.unpack("<i", match.group(1))[0] for match in _X86_SUBTRACT.finditer(code)]


def _arm64_frames(code: bytes) -> list[int]:
    """``sub sp, sp, #imm12``, which may be shifted left by 12 bits; a large frame takes one of each kind."""
    frames = []
    for (word,) in struct.iter_unpack("<I", code[: len(code) // 4 * 4]):
        if word & 0xFF8003FF == 0xD10003FF:
            size = word >> 10 & 0xFFF
            frames.append((size << 12) + 0x1000 if word >> 22 & 1 else size)
    return frames
