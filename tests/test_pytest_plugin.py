"""The pytest plugin: what it emulates, which skips it takes away, and what it says."""

from __future__ import annotations

import re

import pytest

import metalwright
from metalwright.pytest_plugin import for_want_of_a_mac

pytest_plugins = ["pytester"]
ON = ("-p", "metalwright.pytest_plugin", "--metal=cpu")
UNSKIP = (*ON, "--metal-unskip")


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """Load what emulation loads: a session inside this one forgets the modules that were loaded in it."""
    with metalwright.emulate():
        pass


def run(pytester: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    """Run a file that uses neither torch nor Core AI."""
    pytester.makepyfile(test_it=source)
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", *options)


def run_apart(pytester: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(test_it=source)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *options)


def unskipped(result: pytest.RunResult) -> tuple[int, dict[str, int]]:
    """Return what the summary says: how many tests, and how many for each reason."""
    text = result.stdout.str()
    found = re.search(
        r"^(\d+) un-skipped: would have been skipped for want of macOS or Metal$", text, re.MULTILINE
    )
    assert found, text
    return int(found[1]), {
        reason: int(number) for number, reason in re.findall(r"^  \[(\d+)\] (.+)$", text, re.MULTILINE)
    }


@pytest.mark.parametrize(
    "reason",
    [
        "Metal tests run only on Mac",
        "requires macOS 27 or newer",
        "needs Apple silicon",
        "MPS is not available",
        "Metal is not supported on this machine",
        "not on macOS",
        "skipped off Darwin",
        "no Metal 4 GPU here",
        "OS X",
    ],
)
def test_reasons_for_want_of_a_mac(reason: str) -> None:
    assert for_want_of_a_mac(reason)


@pytest.mark.parametrize(
    "reason",
    [
        "",
        "requires CUDA",
        "needs the network",
        "Windows only",
        "a metallic taste; machine learning; maps",
        "needs the machine's MAC address",
        "for bare-metal servers",
        "crashes on macOS",
        "not supported on macOS",
        "unavailable on the Mac",
        "MPS bug, see the tracker",
        "Metal results are wrong in this release",
        "flaky on Apple silicon",
        "reenable once runtime kernel moved to support Metal 4",
        None,
        7,
    ],
)
def test_other_reasons(reason: object) -> None:
    assert not for_want_of_a_mac(reason)


EMULATED = """
import torch
from coreai.runtime import NDArray, StorageKind
from coreai_torch import MetalParameter, TorchMetalKernel

NDArray([1.0], backing=StorageKind.METAL)  # when it is imported, too

def test_core_ai():
    NDArray([1.0], backing=StorageKind.METAL)

def test_torch():
    x = torch.ones(4)
    torch.mps.compile_shader("kernel void k(device float* x, uint i [[thread_position_in_grid]]) { x[i] += 1; }").k(x)
    assert x.tolist() == [2] * 4

def doubled(x: torch.Tensor) -> torch.Tensor:
    return 2 * x

def test_a_kernel_of_core_ai_called_eagerly_is_its_reference_as_on_a_mac():
    kernel = TorchMetalKernel("plugin_doubled", ["x"], ["out"], "out[gid] = 7;", doubled,
                              [MetalParameter("gid", "uint", "thread_position_in_grid")])
    sizes = dict(threads_per_grid=(4, 1, 1), threads_per_thread_group=(4, 1, 1), result_shapes=[[4]])
    assert kernel(torch.ones(4), **sizes).tolist() == [2] * 4
"""


def test_everything_is_emulated_for_the_whole_session(pytester: pytest.Pytester) -> None:
    result = run_apart(pytester, EMULATED, *ON)
    result.assert_outcomes(passed=3)
    result.stdout.re_match_lines([r"metalwright: Metal kernels of .*torch.*coreai.* run on the CPU, checked"])
    result.stdout.no_fnmatch_line("*un-skipped*")
    result.stdout.no_fnmatch_line("metalwright: tests that skip*")


def test_nothing_is_emulated_without_the_option(pytester: pytest.Pytester) -> None:
    result = run_apart(pytester, EMULATED, "-p", "metalwright.pytest_plugin")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*Backing of kind 'metal' is not supported*"])
    result.stdout.no_fnmatch_line("*metalwright: *")


OUT_OF_BOUNDS = """
import torch

def test_it():
    x = torch.ones(4)
    torch.mps.compile_shader(
        "kernel void k(device float* x, uint i [[thread_position_in_grid]]) { if (i == 0) { x[0] = x[5000] * 0 + 3; } }"
    ).k(x)
"""


def test_kernels_are_checked(pytester: pytest.Pytester) -> None:
    result = run_apart(pytester, OUT_OF_BOUNDS, *ON)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*MemoryFault*"])


def test_the_traceback_of_a_fault_ends_at_the_test(pytester: pytest.Pytester) -> None:
    result = run_apart(pytester, OUT_OF_BOUNDS, *ON)
    result.stdout.fnmatch_lines([">       ).k(x)", "test_it.py:7: MemoryFault"])
    result.stdout.no_re_match_line(r".*metalwright/\S+\.py:\d+")
    result = run_apart(pytester, OUT_OF_BOUNDS, *ON, "--full-trace")
    result.stdout.fnmatch_lines(["*metalwright*.py:*: MemoryFault"])


def test_unchecked_says_so(pytester: pytest.Pytester) -> None:
    result = run(pytester, "def test_it(): pass", *ON, "--metal-unchecked")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["metalwright: Metal kernels of * run on the CPU, unchecked"])


def test_unskipping_is_announced(pytester: pytest.Pytester) -> None:
    result = run(pytester, "def test_it(): pass", *UNSKIP)
    result.stdout.fnmatch_lines(
        ["metalwright: tests that skip themselves for want of macOS or Metal are run"]
    )
    assert unskipped(result) == (0, {})


@pytest.mark.parametrize("option", ["--metal-unskip", "--metal-unchecked"])
def test_options_that_need_the_first(pytester: pytest.Pytester, option: str) -> None:
    result = run(pytester, "def test_it(): pass", "-p", "metalwright.pytest_plugin", option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{option} needs --metal=cpu*"])


def test_another_machine_is_refused(pytester: pytest.Pytester) -> None:
    result = run(pytester, "def test_it(): pass", "-p", "metalwright.pytest_plugin", "--metal=gpu")
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_a_conftest_may_name_the_plugin(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("pytest_plugins = ['metalwright.pytest_plugin']")
    result = run_apart(pytester, EMULATED, "--metal=cpu")
    result.assert_outcomes(passed=3)


MARKS = """
import sys
import pytest

here = sys.platform != "nowhere"
only = pytest.mark.skipif(here, reason="requires macOS")

@only
def test_reason(): pass

@only
@pytest.mark.parametrize("x", [1, 2])
def test_twice(x): pass

@only
class TestClass:
    def test_one(self): pass
    def test_two(self): pass

@pytest.mark.parametrize("x", [1, pytest.param(2, marks=only)])
def test_parameter(x): pass

@pytest.mark.skipif("sys.platform != 'darwin' or True")
def test_text(): pass

@pytest.mark.skipif("sys.platform != 'darwin' or True", reason="needs the GPU")
def test_text_with_a_reason(): pass

@pytest.mark.skipif(condition=here, reason="MPS only")
def test_named(): pass

@pytest.mark.skip(reason="Metal only")
def test_mark_skip(): pass

@pytest.mark.skip("Metal only")
def test_mark_skip_by_position(): pass

@pytest.mark.skipif(not here, reason="no Metal here")
def test_not_met(): pass

# these stay

@only
@pytest.mark.skipif(here, reason="needs the network")
def test_kept_other_mark(): pass

@pytest.mark.skipif("sys.platform != 'nowhere'")
def test_kept_text(): pass

@pytest.mark.skipif(here, reason="broken on Metal")
def test_kept_defect(): pass

@pytest.mark.skipif("'mps' != 'x'", reason="MPS crashes")
def test_kept_text_of_a_defect(): pass

@pytest.mark.skip(reason="slow")
def test_kept_slow(): pass

@pytest.mark.skip
def test_kept_bare(): pass
"""


def test_marks(pytester: pytest.Pytester) -> None:
    run(pytester, MARKS, "-p", "metalwright.pytest_plugin").assert_outcomes(passed=2, skipped=17)
    result = run(pytester, MARKS, *UNSKIP)
    result.assert_outcomes(passed=13, skipped=6)
    number, reasons = unskipped(result)
    assert number == 11  # not the one that another mark skips
    assert reasons == {
        "requires macOS": 6,
        "MPS only": 1,
        "Metal only": 2,
        "needs the GPU": 1,
        "condition: sys.platform != 'darwin' or True": 1,
    }


def test_a_condition_that_cannot_be_evaluated_is_an_error_as_ever(pytester: pytest.Pytester) -> None:
    source = "import pytest\n@pytest.mark.skipif('darwin.missing', reason='macOS')\ndef test_it(): pass\n"
    run(pytester, source, *UNSKIP).assert_outcomes(errors=1)


def test_other_plugins_see_the_marks(pytester: pytest.Pytester) -> None:
    source = """
import pytest

@pytest.fixture
def marked(request):
    request.applymarker(pytest.mark.xfail(reason="added late", strict=True))

@pytest.mark.skipif(True, reason="macOS")
def test_it(request, marked):
    assert [mark.name for mark in request.node.iter_markers()][:1] == ["skipif"]
    assert False
"""
    run(pytester, source, *UNSKIP).assert_outcomes(xfailed=1)


def test_marks_that_a_conftest_adds(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
import pytest

def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.skip(reason="needs a Mac"))
""")
    result = run(pytester, "def test_it(): pass", *UNSKIP)
    result.assert_outcomes(passed=1)
    assert unskipped(result) == (1, {"needs a Mac": 1})


CALLS = """
import pytest
from pytest import skip

def test_call():
    pytest.skip("needs Metal")

def test_imported_call():
    skip(reason="needs Metal")

@pytest.fixture
def metal():
    pytest.skip("a fixture needs Metal")

def test_fixture(metal): pass

@pytest.fixture(scope="module", params=["cpu", "gpu"])
def device(request):
    if request.param == "gpu":
        pytest.skip("no Apple GPU")
    return request.param

def test_wide(device): pass
def test_wide_too(device): pass

def test_kept():
    pytest.skip("needs the network")

def test_kept_without_a_reason():
    pytest.skip()

def test_kept_exception():
    raise pytest.skip.Exception("macOS")

def test_kept_import():
    pytest.importorskip("a_module_of_apple")
"""


def test_calls(pytester: pytest.Pytester) -> None:
    run(pytester, CALLS, "-p", "metalwright.pytest_plugin").assert_outcomes(passed=2, skipped=9)
    result = run(pytester, CALLS, *UNSKIP)
    result.assert_outcomes(passed=7, skipped=4)
    assert unskipped(result) == (5, {"needs Metal": 2, "a fixture needs Metal": 1, "no Apple GPU": 2})


KEPT = """
import unittest
import pytest

def test_call():
    pytest.skip("no network")

def helper():
    __tracebackhide__ = True
    pytest.skip("no network")

def test_helper():
    helper()

class Some(unittest.TestCase):
    def test_call(self):
        self.skipTest("no network")

@pytest.mark.skipif(True, reason="macOS")
def test_unskipped_but_then():
    pytest.skip("no network")

@pytest.mark.skipif(True, reason="macOS")
@pytest.mark.xfail
def test_unskipped_and_fails():
    assert False
"""


def test_a_skip_that_stays_is_reported_where_it_was_called(pytester: pytest.Pytester) -> None:
    def places(*options: str) -> list[str]:
        found = run(pytester, KEPT, "-rs", *options).stdout.lines
        return [line for line in found if line.startswith("SKIPPED") and "network" in line]

    assert len(places()) == 3
    assert [*places(), "SKIPPED [1] test_it.py:20: no network"] == places(*UNSKIP)


def test_only_what_ran_is_counted(pytester: pytest.Pytester) -> None:
    result = run(pytester, KEPT, *UNSKIP)
    result.assert_outcomes(skipped=4, xfailed=1)
    assert unskipped(result) == (1, {"macOS": 1})


@pytest.mark.parametrize("direct", [True, False])
def test_a_module_that_skips_itself(pytester: pytest.Pytester, direct: bool) -> None:
    call = "pytest.skip('macOS only', allow_module_level=True)"
    pytester.makepyfile(helper=f"import pytest\ndef require_mac():\n    {call}\n")
    line = call if direct else "import helper; helper.require_mac()"
    result = run(pytester, f"import pytest\n{line}\ndef test_one(): pass\ndef test_two(): pass\n", *UNSKIP)
    result.assert_outcomes(passed=2)
    assert unskipped(result) == (2, {"macOS only": 2})


def test_a_module_that_skips_itself_for_another_reason(pytester: pytest.Pytester) -> None:
    source = "import pytest\npytest.skip('no network', allow_module_level=True)\ndef test_one(): pass\n"
    run(pytester, source, *UNSKIP).assert_outcomes(skipped=1)


UNITTEST = """
import unittest

class Some(unittest.TestCase):
    @unittest.skipUnless(False, "requires Metal")
    def test_unless(self): pass

    @unittest.skipIf(True, "not macOS")
    def test_if(self): pass

    @unittest.skip("Darwin only")
    def test_always(self): pass

    def test_call(self):
        self.skipTest("no MPS")

    @unittest.skipIf(True, "needs CUDA")
    def test_kept(self): pass

    @unittest.skip
    def test_kept_bare(self): pass

    def test_kept_call(self):
        self.skipTest("needs CUDA")

    def test_kept_exception(self):
        raise unittest.SkipTest("macOS")

@unittest.skipUnless(False, "Apple only")
class Whole(unittest.TestCase):
    def test_one(self): pass
    def test_two(self): pass

@unittest.skipUnless(False, "CUDA only")
class Kept(unittest.TestCase):
    def test_one(self): pass

@unittest.skipUnless(False, "Apple only")
def test_function(): pass
"""


def test_unittest(pytester: pytest.Pytester) -> None:
    run(pytester, UNITTEST, "-p", "metalwright.pytest_plugin").assert_outcomes(skipped=12)
    result = run(pytester, UNITTEST, *UNSKIP)
    result.assert_outcomes(passed=7, skipped=5)
    number, reasons = unskipped(result)
    assert number == 7
    assert reasons == {"requires Metal": 1, "not macOS": 1, "Darwin only": 1, "no MPS": 1, "Apple only": 3}


def test_without_the_option_all_skips_stay(pytester: pytest.Pytester) -> None:
    run(pytester, UNITTEST, *ON).assert_outcomes(skipped=12)
    run(pytester, CALLS, *ON).assert_outcomes(passed=2, skipped=9)


def test_workers_of_xdist_send_what_they_counted(pytester: pytest.Pytester) -> None:
    result = run_apart(pytester, CALLS + UNITTEST, *UNSKIP, "-n", "2")
    result.assert_outcomes(passed=14, skipped=9)
    assert unskipped(result)[0] == 12


def test_what_it_patches_is_put_back(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it="def test_it(): pass")
    pytester.makepyfile(
        main="""
import unittest, _pytest.outcomes, pytest
from coreai.runtime import NDArray
before = (pytest.skip, _pytest.outcomes.skip, unittest.skip, unittest.case.skip, unittest.TestCase.skipTest, NDArray.__init__)
assert pytest.main(["-q", "-p", "metalwright.pytest_plugin", "--metal=cpu", "--metal-unskip", "test_it.py"]) == 0
after = (pytest.skip, _pytest.outcomes.skip, unittest.skip, unittest.case.skip, unittest.TestCase.skipTest, NDArray.__init__)
assert before == after
"""
    )
    assert pytester.runpython("main.py").ret == 0
