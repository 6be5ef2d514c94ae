"""Lines that a kernel writes with ``os_log`` come out through Python's ``logging``."""

import logging

import pytest
import torch
from coreai_torch import TorchMetalKernel

import metalwright
from metalwright import MetalKernel, MetalParameter

GID = [MetalParameter("gid", "uint", "thread_position_in_grid")]
SIZES = {"threads_per_grid": (3, 1, 1), "result_shapes": [[3]]}
SRC = """
out[gid] = x[gid];
if (gid == 1) {
    os_log_default.log_debug("debug");
    os_log_default.log_info("info %d", -7);
    os_log_default.log("plain %.2f %u", x[gid], gid);
    os_log_default.log_error("error");
    os_log_default.log_fault("fault 100%%");
}
"""
LINES = [
    (logging.DEBUG, "logs, thread (1, 0, 0): debug"),
    (logging.INFO, "logs, thread (1, 0, 0): info -7"),
    (logging.INFO, "logs, thread (1, 0, 0): plain 2.50 1"),
    (logging.ERROR, "logs, thread (1, 0, 0): error"),
    (logging.CRITICAL, "logs, thread (1, 0, 0): fault 100%"),
]


def same(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@pytest.fixture(params=[MetalKernel, TorchMetalKernel])
def kernel(request):
    return request.param("logs", ["x"], ["out"], SRC, same, GID)


def lines(caplog):
    return [(record.levelno, record.getMessage()) for record in caplog.records]


def test_a_call_logs_at_the_levels_of_the_kernel(kernel, caplog):
    caplog.set_level(logging.DEBUG, "metalwright.kernel")
    with metalwright.emulate():
        kernel(torch.tensor([1.0, 2.5, 4.0]), threads_per_thread_group=(3, 1, 1), **SIZES)
    assert lines(caplog) == LINES
    assert {record.name for record in caplog.records} == {"metalwright.kernel"}
    record = caplog.records[0]
    assert (record.kernel, record.position) == ("logs", (1, 0, 0))


def test_a_launch_logs_and_a_level_that_is_off_is_silent(kernel, caplog):
    caplog.set_level(logging.ERROR, "metalwright.kernel")
    metalwright.launch(kernel, [torch.tensor([1.0, 2.5, 4.0])], threads_per_threadgroup=(3, 1, 1), **SIZES)
    assert lines(caplog) == LINES[3:]


def test_a_check_does_not_log(kernel, caplog):
    caplog.set_level(logging.DEBUG, "metalwright.kernel")
    case = {"inputs": [torch.ones(3)], "threads_per_thread_group": (3, 1, 1), **SIZES}
    assert metalwright.check(kernel, [case]).ok
    assert lines(caplog) == []


def copy_of(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def test_lines_before_a_fault_are_not_lost(caplog: pytest.LogCaptureFixture) -> None:
    src = 'os_log_default.log("at %d", gid);\nout[gid + 100] = x[gid];'
    kernel = MetalKernel("logs_then_fails", ["x"], ["out"], src, copy_of, GID)
    with caplog.at_level(logging.INFO, "metalwright.kernel"), pytest.raises(metalwright.errors.MemoryFault):
        kernel(torch.ones(3), threads_per_thread_group=(3, 1, 1), **SIZES)
    assert [record.getMessage() for record in caplog.records] == ["logs_then_fails, thread (0, 0, 0): at 0"]
