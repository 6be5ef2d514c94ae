"""The structs of ``runtime/abi.h`` for ctypes, field by field, and the offsets that compiled kernels rely on."""

from __future__ import annotations

import ctypes
from ctypes import c_int32, c_int64, c_uint32, c_uint64, c_void_p

FIBER_BYTES = 256
SCHEDULER_BYTES = 65536
LOG_RECORD_BYTES = 32
SHADOW_BYTES = 36  # of each word of WORD_BYTES
WORD_BYTES = 4
EVENT_RACE, EVENT_UNINITIALISED, EVENT_NUMBER = 1, 2, 3
PLACE_BUFFER, PLACE_THREADGROUP = 0, 1
GATHERED_BYTES = (32 + 1) * 32  # what the lanes of a simdgroup exchange, and what they fold it to


class BufferStruct(ctypes.Structure):
    """``mw_buffer``."""

    _fields_ = [
        ("data", c_void_p),
        ("bytes", c_uint64),
        ("extents", c_void_p),
        ("written", c_void_p),
        ("rank", c_uint32),
        ("writable", c_uint32),
        ("shadow", c_void_p),
        ("fresh", c_uint32),
        ("unused", c_uint32),
    ]


class FaultStruct(ctypes.Structure):
    """``mw_fault``."""

    _fields_ = [
        ("kind", c_uint32),
        ("site", c_uint32),
        ("write", c_uint32),
        ("object", c_uint32),
        ("padding", c_int32),
        ("position", c_uint32 * 3),
        ("other_site", c_uint32),
        ("size", c_uint32),
        ("offset", c_int64),
        ("object_bytes", c_uint64),
    ]


class ObservedStruct(ctypes.Structure):
    """``mw_observed``."""

    _fields_ = [
        ("site", c_uint32),
        ("position", c_uint32 * 3),
        ("write", c_uint32),
        ("value", c_uint32),
    ]


class EventStruct(ctypes.Structure):
    """``mw_event``."""

    _fields_ = [
        ("kind", c_uint32),
        ("place", c_uint32),
        ("object", c_uint32),
        ("mask", c_uint32),
        ("offset", c_uint64),
        ("count", c_uint64),
        ("other_group", c_uint32),
        ("barriers", c_uint32),
        ("now", ObservedStruct),
        ("before", ObservedStruct),
    ]


class LaunchStruct(ctypes.Structure):
    """``mw_launch``."""

    _fields_ = [
        ("buffers", c_void_p),
        ("buffer_count", c_uint32),
        ("reverse", c_uint32),
        ("grid_size", c_uint32 * 3),
        ("group_size", c_uint32 * 3),
        ("groups", c_uint32 * 3),
        ("stop", c_uint32),
        ("group_total", c_uint64),
        ("group_next", c_uint64),
        ("group_chunk", c_uint64),
        ("threadgroup_bytes", c_void_p),
        ("threadgroup_count", c_uint32),
        ("fault_taken", c_uint32),
        ("log", c_void_p),
        ("log_bytes", c_uint64),
        ("log_used", c_uint64),
        ("events", c_void_p),
        ("event_room", c_uint32),
        ("event_count", c_uint32),
        ("fenced", c_uint32),
        ("unused", c_uint32),
        ("fault", FaultStruct),
    ]


class WorkerStruct(ctypes.Structure):
    """``mw_worker``."""

    _fields_ = [
        ("arena", c_void_p),
        ("arena_bytes", c_uint64),
        ("stacks", c_void_p),
        ("stack_bytes", c_uint64),
        ("fibers", c_void_p),
        ("scheduler_stack", c_void_p),
        ("scheduler", c_void_p),
        ("launcher", c_void_p),
        ("arena_shadow", c_void_p),
        ("paused", c_uint32),
        ("unused", c_uint32),
    ]


class LogRecordStruct(ctypes.Structure):
    """``mw_log_record``."""

    _fields_ = [
        ("bytes", c_uint32),
        ("level", c_uint32),
        ("count", c_uint32),
        ("format_bytes", c_uint32),
        ("position", c_uint32 * 3),
        ("unused", c_uint32),
    ]


# textures take the places behind the buffers; the headers count the components of pixels the same way (metal_texture)
FIRST_TEXTURE = 31
PIXEL_COMPONENTS = (
    "32float",
    "16float",
    "8unorm",
    "16unorm",
    "8snorm",
    "16snorm",
    "8uint",
    "16uint",
    "32uint",
    "8sint",
    "16sint",
    "32sint",
)

Run = ctypes.CFUNCTYPE(c_uint32, ctypes.POINTER(LaunchStruct), ctypes.POINTER(WorkerStruct))

BUFFER_SIZE = ctypes.sizeof(BufferStruct)
BUFFER_DATA = BufferStruct.data.offset
BUFFER_EXTENTS = BufferStruct.extents.offset
# of mw_context, whose other fields only the runtime knows
CONTEXT_ARENA = 8
CONTEXT_DYNAMIC = 16

FAULT_BUFFER = 1
FAULT_THREADGROUP = 2
FAULT_PRIVATE = 3
FAULT_CONSTANT = 4
FAULT_WILD = 5
FAULT_READ_ONLY = 6
FAULT_MISALIGNED = 7
FAULT_BARRIER = 8
FAULT_STOPPED = 9
FAULT_TRAP = 10
FAULT_DIVISION = 11
FAULT_THREADGROUP_ARGUMENT = 12
FAULT_LANES = 13
FAULT_SCOPE = 14
FAULT_DEPTH = 15
