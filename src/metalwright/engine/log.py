"""Reads what kernels wrote with ``os_log``."""

from __future__ import annotations

import re
import struct

from metalwright.engine import abi
from metalwright.engine.types import LogLine

_LEVELS = ("debug", "info", "default", "error", "fault")
_CONVERSION = re.compile(r"%([-+ #0]*)(\d+)?(?:\.(\d+))?(?:hh|h|ll|l|j|z|t)?([diouxXfFeEgGaAcsp%])")


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
        flags, width, precision, conversion = match.groups()
        if conversion == "%":
            return "%"
        value = next(left, None)
        if value is None:
            return match.group(0)
        if conversion in "diouxXcp":
            value = int(value)
            conversion = {"i": "d", "u": "d", "p": "x"}.get(conversion, conversion)
        spec = f"%{flags}{width or ''}{'.' + precision if precision else ''}{conversion}"
        if conversion in "aA":
            return float(value).hex()
        return spec % value

    return _CONVERSION.sub(fill, text)


def _value(data: bytes, kind: str) -> int | float:
    return struct.unpack({"i": "<q", "u": "<Q", "f": "<d"}.get(kind, "<q"), data)[0]
