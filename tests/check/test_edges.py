"""Shapes at which kernels break: where they come from, and what a check makes of them."""

import pytest
import torch

import metalwright
from metalwright import ArgumentError, MetalKernel, MetalParameter
from metalwright.check import cases_of, random
from metalwright.check.edges import edge_cases
from metalwright.check.family import family_of
from metalwright.check.tiles import tile_sizes

GID = [MetalParameter("gid", "uint", "thread_position_in_grid")]


def add_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def row_sums(x: torch.Tensor) -> torch.Tensor:
    return x.sum(-1)


def kernel(name, src, reference=add_one, **more):
    return MetalKernel(name, ["x"], ["out"], src, reference, GID, template_dtypes={"x": "TYPE"}, **more)


def element_case(shape, group=(64, 1, 1), dtype=torch.float32):
    size = torch.Size(shape).numel()
    sizes = {"threads_per_grid": (size, 1, 1), "threads_per_thread_group": group}
    return {"inputs": [random(shape, dtype)], **sizes, "result_shapes": [shape]}


def rows_case(rows: int = 5, columns: int = 40, *, dtype=torch.float32):
    sizes = {"threads_per_grid": (rows, 1, 1), "threads_per_thread_group": (16, 1, 1)}
    return {"inputs": [random((rows, columns), dtype)], **sizes, "result_shapes": [[rows]]}


def sums(name, body):
    made = kernel(name, body, row_sums)
    made.case_for = rows_case
    return made


RIGHT = (
    "float sum = 0; for (int i = 0; i < x.get_extent(0); ++i) sum += float(x[i, gid]); out[gid] = TYPE(sum);"
)
# the columns past the last multiple of eight are left out
TAIL = RIGHT.replace("x.get_extent(0); ++i", "x.get_extent(0) / 8 * 8; ++i")


def derived(of, given=None):
    known = list(cases_of(of, given))
    return list(edge_cases(family_of(of, known), known))


# --- tile sizes ---


def test_tile_sizes_come_from_threadgroups_and_from_the_source():
    of = kernel(
        "tiles",
        "threadgroup float t[24]; /* 512 */ t[0] = 1.5f + 100 + x[gid % 16]; out[gid] = TYPE(2);",
        helper_src="#define TILE 128\nconstant int unused = 3;",
    )
    assert set(tile_sizes(of, [])) == {24, 16, 128}
    assert tile_sizes(of, [(8, 8, 1)])[:2] == (8, 64), "those of threadgroups first"
    assert 32 in tile_sizes(kernel("simd", "out[gid] = simd_sum(x[gid]);"), [])


# --- where shapes come from ---


def test_an_elementwise_kernel_needs_no_more_than_its_cases():
    of = kernel("plain", "out[gid] = x[gid] + TYPE(1);")
    sizes = {case.result_shapes[0][0] for case in derived(of, [element_case((300,))])}
    assert {1, 7, 37, 63, 64, 65} <= sizes


def test_threadgroups_vary_where_the_kernel_cannot_see_them():
    groups = {
        case.threads_per_thread_group
        for case in derived(kernel("p", "out[gid] = x[gid];"), [element_case((300,))])
    }
    assert {(64, 1, 1), (1, 1, 1), (7, 3, 1)} <= groups
    seen = MetalKernel(
        "sees", ["x"], ["out"], "out[gid] = x[gid] + lid;", add_one,
        [*GID, MetalParameter("lid", "uint", "thread_position_in_threadgroup")],
    )  # fmt: skip
    assert {case.threads_per_thread_group for case in derived(seen, [element_case((300,))])} == {(64, 1, 1)}


def test_a_given_tensor_keeps_its_values():
    of = kernel("indices", "out[gid] = x[gid] + TYPE(1);")
    given = {**element_case((6,)), "inputs": [torch.tensor([3.0, 4, 5, 3, 4, 5])]}
    for case in derived(of, [given]):
        assert set(case.inputs[0].tolist()) <= {3.0, 4.0, 5.0}


def test_other_axes_keep_the_grid_of_the_case():
    of = MetalKernel(
        "grid", ["x"], ["out"], "out[gid.x, gid.y] = x[gid.x, gid.y];", add_one,
        [MetalParameter("gid", "uint2", "thread_position_in_grid")],
    )  # fmt: skip
    given = {**element_case((10, 20), (8, 8, 1)), "threads_per_grid": (20, 10, 1)}
    for case in derived(of, [given]):
        rows, columns = case.result_shapes[0]
        assert case.threads_per_grid == (columns, rows, 1)


def test_case_for_is_asked_for_extents_at_the_edges():
    extents = [dict(case.extents) for case in derived(sums("asked", RIGHT), [rows_case(3, 4)])]
    assert {"rows": 1, "columns": 1} in extents and {"rows": 37, "columns": 37} in extents
    for edge in (15, 16, 17):
        assert {"rows": edge, "columns": 40} in extents and {"rows": 5, "columns": edge} in extents


def test_other_float_dtypes_where_the_kernel_has_a_template():
    dtypes = {case.inputs[0].dtype for case in derived(sums("typed", RIGHT), [rows_case(3, 4)])}
    assert dtypes == {torch.float32, torch.float16, torch.bfloat16}


def test_extents_that_the_kernel_does_not_take_are_left_out():
    of = sums("even", RIGHT)
    of.case_for = lambda rows=4, columns=40: rows_case(rows, columns) if rows % 2 == 0 else None
    made = derived(of, [rows_case(4, 4)])
    assert made and all(dict(case.extents)["rows"] % 2 == 0 for case in made)


def test_case_for_alone_gives_the_kernels_case():
    report = metalwright.check(sums("alone", RIGHT))
    assert [case.name for case in report.cases] == ["rows=5, columns=40"] * 3


def test_large_cases_are_not_made():
    of = sums("large", RIGHT + "// 1024\n int tile = 1024; (void)tile;")
    assert all(case.inputs[0].shape != (1025, 1025) for case in derived(of))


def test_a_kernel_of_which_no_other_shape_is_known_is_refused():
    of = kernel("unknown", RIGHT, row_sums)
    with pytest.raises(ArgumentError, match="kernel 'unknown': edges needs to know.*set kernel.case_for"):
        metalwright.check(of, [rows_case(3, 4)], edges=True)


def test_what_case_for_raises_names_the_extents():
    of = sums("raises", RIGHT)
    of.case_for = lambda rows=4, columns=40: rows_case(rows + 0 * (1 // (rows - 1)), columns)
    with pytest.raises(ArgumentError, match=r"case_for\(rows=1, columns=1\) raised ZeroDivisionError"):
        metalwright.check(of, [rows_case(4, 4)], edges=True)


# --- what a check makes of them ---


def test_a_right_kernel_is_right_at_all_edges():
    report = metalwright.check(sums("right", RIGHT), edges=True)
    assert report.ok, str(report)
    assert len(report.cases) > 20
    assert "cancelling" in {case.variant for case in report.cases}


def test_a_tail_that_the_own_cases_do_not_have_is_found():
    own = [rows_case(4, 8), rows_case(16, 64)]
    of = sums("tail", TAIL)
    assert metalwright.check(of, own).ok
    report = metalwright.check(of, own, edges=True)
    assert not report.ok
    wrong = [case for case in report.cases if not case.ok]
    assert {case.findings[0].kind for case in wrong} == {"value"}
    assert len(wrong) <= 5, "more say nothing new"


def test_a_threadgroup_of_another_size_shows_a_size_taken_for_granted():
    src = "uint i = gid / 64 * 64 + gid % 64; if (gid < uint(x.get_extent(0)) / 64 * 64) out[i] = x[i] + TYPE(1);"
    of = kernel("granted", src)
    assert metalwright.check(of, [element_case((128,))]).ok
    report = metalwright.check(of, [element_case((128,))], edges=True)
    assert {f.kind for case in report.cases for f in case.findings} == {"unwritten"}


# --- values that cancel ---


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_cancelling_values_all_but_cancel(dtype):
    x = random((64, 64), dtype).draw(0, "cancelling").double()
    assert x.isfinite().all()
    for axis in (0, 1):
        assert (x.sum(axis).abs() < 0.2 * x.abs().sum(axis)).all()
    assert (x.abs() < 5).any() and (x.abs() >= 8).any()


def test_only_floats_without_a_range_cancel():
    for spec in (random((9,), torch.int32), random((9,), low=0), random((1,))):
        assert not spec.may_cancel
        assert torch.equal(spec.draw(3, "cancelling"), spec.draw(3))


def test_a_sum_kept_in_half_is_seen_with_values_that_cancel():
    half = RIGHT.replace("float sum", "half sum").replace("+= float(", "+= half(")

    def small_case(rows: int = 4, columns: int = 64):
        return rows_case(rows, columns, dtype=torch.float16)

    of = kernel("half_sum", half, row_sums)
    of.case_for = small_case
    report = metalwright.check(of, edges=True)
    assert "cancelling" in {case.variant for case in report.cases if not case.ok}
