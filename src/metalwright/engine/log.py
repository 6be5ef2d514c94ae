"""Reads what kernels wrote with ``os_log``."""

from __future__ import annotations

import math
import re
import struct

from metalwright.engine import abi
from metalwright.engine.types import LogLine

_LEVELS = ("debug", "info", "default", "error", "fault")
_WIDEST = 1024  # a kernel's format is not to fill the memory with spaces
_BITS = {"hh": 8, "h": 16, None: 32}  # of an integer by its length modifier; the others are 64
_CONVERSION = re.compile(r"%([-+ #0]*)(\d+)?(?:\.(\d+))?(hh|h|ll|l|j|z|t)?([diouxXfFeEgGaAcsp%])")


def read(data: bytes) -> tuple[LogLine, ...]:
    """Return the lines in a log buffer (records of ``mw_log_record``)."""
    lines: list[LogLine] = []
    position = 0
    while position + abi.LOG_RECORD_BYTES <= len(data):
        record = abi.LogRecordStruct.from_buffer_copy(data, position)
        if record.bytes == 0:
            break
        body = data[position + abi.LOG_RECORD_BYTES : position + record.bytes]
        kinds = body[record.count * 8 : record.count * 9].decode("ascii", "replace")
        text = body[record.count * 9 : record.count * 9 + record.format_bytes].decode("utf-8", "replace")
        values = [_value(body[8 * i : 8 * i + 8], kinds[i]) for i in range(record.count)]
        level = _LEVELS[record.level] if record.level < len(_LEVELS) else "default"
        lines.append(LogLine(level, format_line(text, values), tuple(record.position)))
        position += record.bytes
    return tuple(lines)


def format_line(text: str, values: list[int | float]) -> str:
    """Fill a ``printf`` format; a conversion without a value stays as it is written."""
    left = iter(values)

    def fill(match: re.Match[str]) -> str:
        flags, width, precision, length, conversion = match.groups()
        if conversion == "%":
            return "%"
        value = next(left, None)
        if value is None:
            return match.group(0)
        if conversion in "diouxXcp":
            bits = {"p": 64, "c": 8}.get(conversion) or _BITS.get(length, 64)
            # a float where the format wants an integer is undefined in C: any number will do, an exception will not
            value = int(value) & ((1 << bits) - 1) if math.isfinite(value) else 0
            if conversion in "di" and value >> (bits - 1):
                value -= 1 << bits
            conversion = {"i": "d", "u": "d", "p": "x"}.get(conversion, conversion)
        width, precision = (min(int(size), _WIDEST) if size else size for size in (width, precision))
        spec = f"%{flags}{width or ''}{f'.{precision}' if precision is not None else ''}{conversion}"
        if conversion in "aA":
            return float(value).hex()
        return spec % value

    return _CONVERSION.sub(fill, text)


def _value(data: bytes, kind: str) -> int | float:
    return struct.unpack({"i": "<q", "u": "<Q", "f": "<d"}.get(kind, "<q"), data)[0]
