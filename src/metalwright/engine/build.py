"""Machine code of kernels, from the disk cache or made by the process that LLVM runs in."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict

from metalwright.engine import builder, cache
from metalwright.engine.target import identity
from metalwright.engine.types import Build, Module
from metalwright.errors import Site


def build(module: Module, symbol: str) -> Build:
    """Return the machine code of a kernel, from the disk cache where it is there."""
    name = cache.key("build", identity(), module.text, symbol, str(module.checked), str(module.watched))
    stored = cache.fetch(name)
    if stored is not None:
        # a file of the right name and the wrong content is a miss
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return _unpack(stored)
    made = builder.generate(module, symbol)
    cache.store(name, _pack(made))
    return made


def _pack(made: Build) -> bytes:
    facts = asdict(made)
    del facts["machine_code"]
    head = json.dumps(facts).encode()
    return len(head).to_bytes(8, "little") + head + made.machine_code


def _unpack(data: bytes) -> Build:
    length = int.from_bytes(data[:8], "little")
    facts = json.loads(data[8 : 8 + length])
    for key in ("threadgroup_sizes", "threadgroup_offsets"):
        facts[key] = tuple(facts[key])
    facts["sites"] = tuple(Site(**site) if site else None for site in facts["sites"])
    return Build(machine_code=data[8 + length :], **facts)
