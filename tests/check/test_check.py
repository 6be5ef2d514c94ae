"""``metalwright.check`` on kernels whose MSL is executed."""

import json
import math

import pytest
import torch
from coreai_torch import TorchMetalKernel

import metalwright
from metalwright import ArgumentError, MetalKernel, MetalParameter
from metalwright.check import random

GID = [MetalParameter("gid", "uint", "thread_position_in_grid")]
LID = [*GID, MetalParameter("lid", "uint", "thread_position_in_threadgroup")]


def add_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def negate(x: torch.Tensor) -> torch.Tensor:
    return -x


def exponential(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(x)


def row_sums(x: torch.Tensor) -> torch.Tensor:
    return x.sum(-1)


def reverse_in_groups(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1, 32).flip(-1).reshape(-1)


def kernel(name, src, reference, metal_params=None, **more):
    return MetalKernel(
        name,
        input_names=["x"],
        result_names=["out"],
        src=src,
        torch_defn=reference,
        template_dtypes={"x": "TYPE"},
        metal_params=metal_params or GID,
        **more,
    )


def case(x, threads=None, group=None, shape=None, **more):
    shape = list(x.shape) if shape is None else shape
    threads = math.prod(shape) if threads is None else threads
    return {
        "inputs": [x],
        "threads_per_grid": (threads, 1, 1),
        "threads_per_thread_group": (group or min(threads, 64), 1, 1),
        "result_shapes": [shape],
        **more,
    }


def only(report):
    """The one case of a report and its one finding."""
    (outcome,) = report.cases
    (finding,) = outcome.findings
    return outcome, finding


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int8, torch.uint8]
)
def test_a_right_kernel_is_right_with_every_variant(dtype):
    report = metalwright.check(
        kernel("right", "out[gid] = x[gid] + TYPE(1);", add_one), [case(random((300,), dtype))]
    )
    assert report.ok and report, str(report)
    variants = [outcome.variant for outcome in report.cases]
    assert variants == ["normal", "extreme", *(["non-finite"] if dtype.is_floating_point else [])]
    result = report.cases[0].results[0]
    assert (result.name, result.shape, result.max_abs, result.max_ulp) == ("out", (300,), 0, 0)
    assert result.unwritten is None and result.order is None


def test_a_wrong_element_is_found_and_named():
    src = "out[gid] = gid == 41 ? x[gid] : x[gid] + TYPE(1);"
    x = torch.arange(100, dtype=torch.float32)
    outcome, finding = only(metalwright.check(kernel("wrong_at_41", src, add_one), [case(x)]))
    assert finding.kind == "value" and finding.result == "out"
    worst = outcome.results[0].worst
    assert (worst.index, worst.got, worst.expected) == ((41,), 41.0, 42.0)
    assert outcome.results[0].wrong == 1


def test_the_worst_index_is_in_torch_order():
    src = "out[gid.x, gid.y] = x[gid.x, gid.y] + TYPE(gid.x == 2 && gid.y == 1 ? 5 : 1);"
    of = kernel("wrong_at_1_2", src, add_one, [MetalParameter("gid", "uint2", "thread_position_in_grid")])
    one = {**case(torch.zeros(3, 4)), "threads_per_grid": (4, 3, 1), "threads_per_thread_group": (4, 3, 1)}
    outcome, _ = only(metalwright.check(of, [one]))
    assert outcome.results[0].worst.index == (1, 2)


def test_unwritten_elements_are_known():
    report = metalwright.check(
        kernel("no_tail", "out[gid] = x[gid] + TYPE(1);", add_one), [case(torch.ones(70), 64)]
    )
    outcome, finding = only(report)
    assert finding.kind == "unwritten"
    assert outcome.results[0].unwritten.count == 6
    assert outcome.results[0].unwritten.first == ((64,), (65,), (66,), (67,), (68,), (69,))


def test_unwritten_elements_are_known_although_the_poison_would_be_right():
    def poison(x: torch.Tensor) -> torch.Tensor:
        return torch.full_like(x, math.nan)

    report = metalwright.check(kernel("lazy", "if (gid > 5) out[gid] = NAN;", poison), [case(torch.ones(10))])
    assert only(report)[1].kind == "unwritten"


def test_a_missing_barrier_is_found():
    src = """
    threadgroup TYPE shared[32];
    shared[lid] = x[gid];
    BARRIER
    out[gid] = shared[31 - lid];
    """
    barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);"
    good = kernel("with_barrier", src.replace("BARRIER", barrier), reverse_in_groups, LID)
    bad = kernel("without_barrier", src.replace("BARRIER", ""), reverse_in_groups, LID)
    cases = [case(random((size,)), group=32) for size in (32, 64, 320)]
    assert metalwright.check(good, cases).ok
    assert not any(outcome.ok for outcome in metalwright.check(bad, cases).cases)


def test_a_race_of_one_line_with_itself_is_not_told_to_wait_at_a_barrier():
    report = metalwright.check(
        kernel("one_for_all", "out[0] = x[gid, 0];", row_sums), [case(random((1, 8)), 8, shape=[1])]
    )
    (race,) = [finding for finding in report.cases[0].findings if finding.kind == "race"]
    assert "one_for_all.src:1:" in race.message
    assert "; let one thread write it, or each an element of its own" in race.message.splitlines()[0]


def test_results_that_depend_on_the_order_are_found_though_one_order_is_right():
    # every thread writes element 0; in order, the last one is right
    src = "out[0] = x[gid];"

    def last(x: torch.Tensor) -> torch.Tensor:
        return x[-1:].clone()

    x = torch.arange(64, dtype=torch.int32)
    (outcome,) = metalwright.check(kernel("race", src, last), [case(x, 64, shape=[1])]).cases
    assert [finding.kind for finding in outcome.findings] == ["race", "order"]
    assert (outcome.results[0].order.forward, outcome.results[0].order.reverse) == (63, 0)


def test_a_sum_in_half_is_wrong_and_in_float_right():
    src = """
    ACC sum = ACC(0);
    for (int i = 0; i < x.get_extent(0); ++i)
        sum += ACC(x[i, gid]);
    out[gid] = TYPE(sum);
    """
    cases = [case(random((8, width), torch.float16), 8, shape=[8]) for width in (100, 500, 2000)]
    in_float = kernel("sum_float", src.replace("ACC", "float"), row_sums)
    in_half = kernel("sum_half", src.replace("ACC", "half"), row_sums)
    right = metalwright.check(in_float, cases)
    assert right.ok, str(right)
    normal = [outcome for outcome in metalwright.check(in_half, cases).cases if outcome.variant == "normal"]
    assert len(normal) == 3 and not any(outcome.ok for outcome in normal)


def test_nan_that_is_lost_is_found():
    def relu(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)

    loses = kernel("loses_nan", "out[gid] = max(x[gid], TYPE(0));", relu)
    keeps = kernel("keeps_nan", "out[gid] = x[gid] < TYPE(0) ? TYPE(0) : x[gid];", relu)
    assert metalwright.check(keeps, [case(random((200,)))]).ok
    outcomes = {
        outcome.variant: outcome for outcome in metalwright.check(loses, [case(random((200,)))]).cases
    }
    assert outcomes["normal"].ok and outcomes["extreme"].ok
    assert [finding.kind for finding in outcomes["non-finite"].findings] == ["not-finite"]


def test_fast_math_is_not_asked_about_what_it_may_assume_away():
    of = kernel("fast", "out[gid] = exp(x[gid]);", exponential)
    report = metalwright.check(
        of, [case(random((200,), low=-5, high=5)), case(random((64,)))], math_mode="fast"
    )
    assert report.ok, str(report)
    assert report.math_mode == "fast"
    assert "non-finite" not in {outcome.variant for outcome in report.cases}


def test_one_bad_case_does_not_stop_the_others():
    src = "out[gid] = x[gid == 200 ? gid + 1000 : gid] + TYPE(1);"
    report = metalwright.check(
        kernel("far", src, add_one), [case(torch.ones(size)) for size in (100, 300, 150)]
    )
    assert [outcome.ok for outcome in report.cases] == [True, False, True]
    finding = report.cases[1].findings[0]
    assert finding.kind == "fault"
    assert "kernel 'far'" in finding.message and "far.src:1" in finding.message


def test_an_access_very_far_outside_does_not_end_python():
    src = "device TYPE* p = &out[0]; p[ulong(gid) << 40] = TYPE(0);"
    report = metalwright.check(kernel("wild", src, add_one), [case(torch.ones(64))])
    assert only(report)[1].kind == "fault"


def test_a_kernel_that_does_not_compile_is_a_verdict_with_the_line():
    report = metalwright.check(
        kernel("typo", "\nout[gid] = y[gid];", add_one), [case(torch.ones(4)), case(torch.ones(5))]
    )
    assert [outcome.findings[0].kind for outcome in report.cases] == ["compile", "compile"]
    finding = report.cases[0].findings[0]
    assert "typo.src:2" in finding.message and "y" in finding.message
    assert (finding.site.line, finding.excerpt) == (2, "out[gid] = y[gid];")
    assert "          out[gid] = y[gid];\n                     ^" in str(report)


def test_every_error_of_a_kernel_that_does_not_compile_is_a_place_of_the_finding():
    report = metalwright.check(kernel("typos", "float a = y;\nout[gid] = z;", add_one), [case(torch.ones(4))])
    _, finding = only(report)
    assert finding.site.line == 1 and [other.site.line for other in finding.related] == [2]
    assert str(report).count("^") == 2 and "'y'" in finding.message and "'z'" not in finding.message


def test_a_fault_is_a_finding_with_its_place():
    report = metalwright.check(
        kernel("outside", "\n  out[gid] = x[gid + 1];", add_one), [case(torch.ones(4))]
    )
    _, finding = only(report)
    assert (finding.site.file, finding.site.line, finding.site.column) == ("outside.src", 2, 14)
    assert finding.excerpt == "  out[gid] = x[gid + 1];"
    assert "\n" not in finding.message and str(report).count(finding.excerpt) == 1
    plain = report.to_dict()["cases"][0]["findings"][0]
    assert plain["site"]["line"] == 2 and plain["excerpt"] == finding.excerpt and plain["related"] == []


def test_a_case_that_was_parsed_is_taken_as_it_is():
    of = kernel("parsed", "out[gid] = x[gid] + TYPE(1);", add_one)
    of.cases = lambda: [case(torch.ones(4)), case(random((5,)))]
    _, second = metalwright.check.cases_of(of, None)
    report = metalwright.check(of, [second])
    assert [outcome.title for outcome in report.cases] == [
        f"case 2 ({variant})" for variant in ("normal", "extreme", "non-finite")
    ]


def test_json_has_the_worst_elements_and_no_map():
    src = "out[gid] = gid < 20 ? x[gid] + TYPE(gid) : x[gid] + TYPE(1);"
    report = metalwright.check(kernel("worst", src, add_one), [case(torch.zeros(30))])
    result = report.cases[0].results[0]
    assert [element.index for element in result.worst_elements] == [(i,) for i in range(19, 11, -1)]
    assert result.worst_elements[0] == result.worst
    assert result.error_map.marks == ("x.xxxxxxxxxxxxxxxxxx..........",)
    plain = report.to_dict()["cases"][0]["results"][0]
    assert "error_map" not in plain and len(plain["worst_elements"]) == 8
    assert sum(entry["count"] for entry in plain["ulps"]) == 30


def test_a_right_result_has_no_map():
    report = metalwright.check(
        kernel("fine", "out[gid] = x[gid] + TYPE(1);", add_one), [case(torch.zeros(30))]
    )
    result = report.cases[0].results[0]
    assert (result.error_map, result.worst_elements) == (None, ())
    assert [(entry.most, entry.count) for entry in result.ulps] == [(0, 30)]


def test_an_endless_loop_is_stopped():
    src = "volatile int on = 1; while (on) {} out[gid] = x[gid];"
    report = metalwright.check(kernel("endless", src, add_one), [case(torch.ones(2))], timeout=0.5)
    assert only(report)[1].kind == "fault"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"threads_per_thread_group": (2000, 1, 1)}, "1024"),
        ({"threads_per_grid": (0, 1, 1)}, "threads_per_grid"),
        ({"inputs": [torch.ones(4, 4).T]}, "contiguous"),
        ({"result_shapes": [[5]]}, "result"),
        ({"inputs": [torch.ones(4, dtype=torch.float64)]}, "float64"),
    ],
)
def test_a_case_that_cannot_be_launched_is_refused(change, message):
    of = kernel("refused", "out[gid] = x[gid] + TYPE(1);", add_one)
    outcome, finding = only(metalwright.check(of, [{**case(torch.ones(4)), **change}]))
    assert finding.kind == "refused" and message in finding.message and "refused" in finding.message
    assert outcome.results == ()


def test_what_the_reference_raises_is_a_verdict():
    def picky(x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_compiling() and type(x) is torch.Tensor and bool((x < 0).any()):
            raise ValueError("no negatives")
        return x + 1

    of = kernel("picky", "out[gid] = x[gid] + TYPE(1);", picky)
    report = metalwright.check(of, [case(-torch.ones(3)), case(torch.ones(3))])
    assert [outcome.ok for outcome in report.cases] == [False, True]
    assert "the reference raised ValueError: no negatives" in report.cases[0].findings[0].message


def test_the_same_seed_gives_the_same_report():
    of = kernel("seeded", "out[gid] = exp(x[gid]) * TYPE(1.0001f);", exponential)
    one, same, other = (metalwright.check(of, [case(random((50,)))], seed=seed) for seed in (3, 3, 4))
    assert one == same
    assert one.cases[0].results != other.cases[0].results


def test_a_tolerance_can_be_given():
    of = kernel("near", "out[gid] = x[gid] + TYPE(1.01f);", add_one)
    cases = [case(torch.zeros(5))]
    assert not metalwright.check(of, cases)
    assert metalwright.check(of, cases, tolerances={torch.float32: (0.0, 0.02)})
    assert not metalwright.check(of, cases, tolerances={torch.float32: (0.0, 0.005)})


def test_a_plain_core_ai_kernel_is_checked_too():
    plain = TorchMetalKernel(
        "plain_negate", input_names=["x"], result_names=["out"], src="out[gid] = x[gid];", torch_defn=negate,
        metal_params=GID,
    )  # fmt: skip
    assert only(metalwright.check(plain, [case(torch.ones(3))]))[1].kind == "value"
    plain.src = "out[gid] = -x[gid];"
    assert metalwright.check(plain, [case(torch.ones(3))])


def test_the_kernels_own_cases_are_the_default():
    of = kernel("own", "out[gid] = x[gid] + TYPE(1);", add_one)
    with pytest.raises(ArgumentError, match="kernel 'own' has no cases"):
        metalwright.check(of)
    of.cases = lambda: (case(random((size,)), name=f"size {size}") for size in (1, 2))
    report = metalwright.check(of)
    assert [outcome.title for outcome in report.cases][::3] == ["size 1 (normal)", "size 2 (normal)"]


def test_what_is_no_kernel_is_refused():
    with pytest.raises(ArgumentError, match=r"expected a MetalKernel.*got function"):
        metalwright.check(add_one, [case(torch.ones(3))])
    with pytest.raises(ArgumentError, match="math_mode: expected 'safe' or 'fast', got 'loose'"):
        metalwright.check(
            kernel("m", "out[gid] = x[gid];", add_one), [case(torch.ones(3))], math_mode="loose"
        )


def test_two_results_are_judged_apart():
    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + 1, x.sum(-1, keepdim=True).to(torch.int32)

    of = MetalKernel(
        "two", input_names=["x"], result_names=["a", "b"], metal_params=GID, torch_defn=both,
        src="a[gid] = x[gid] + 1; if (gid == 0) b[0] = 7;",
    )  # fmt: skip
    one = {**case(torch.ones(4)), "result_shapes": [[4], [1]]}
    outcome, finding = only(metalwright.check(of, [one]))
    assert finding.result == "b" and [r.dtype for r in outcome.results] == ["float32", "int32"]


def test_the_report_says_everything_as_text():
    bad = kernel("text", "out[gid] = gid == 2 ? NAN : x[gid];", add_one)
    text = str(metalwright.check(bad, [case(torch.ones(3), name="three ones")]))
    assert "text: wrong in 1 of 1 case" in text
    assert "three ones" in text and "x:float32[3]" in text and "out float32[3]" in text
    assert "2 of 3 elements differ from the reference by more than the tolerance; worst at" not in text, (
        "the NaN is worst"
    )
    assert "2 of 3 elements differ" in text
    assert "1 of 3 elements are infinite or NaN where the reference is not" in text
    assert "got nan, expected 2" in text
    assert "tolerance for float32: rtol 1.3e-06, atol 1e-05" in text and "reference in float64" in text
    assert not any(line != line.rstrip() for line in text.splitlines())


def test_a_mistake_that_breaks_many_cases_is_told_once():
    bad = kernel("often", "oops;", add_one)
    text = str(metalwright.check(bad, [case(torch.ones(size)) for size in range(1, 8)]))
    assert text.count("does not compile") == 1 and "the same in 6 more cases" in text


def test_the_report_as_json_is_plain_and_complete():
    bad = kernel("json", "out[gid] = gid == 1 ? INFINITY : x[gid] + 1;", add_one)
    report = metalwright.check(bad, [case(torch.ones(3))], seed=5)
    plain = json.loads(report.to_json(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert plain["ok"] is False and plain["kernel"] == "json" and plain["seed"] == 5
    (outcome,) = plain["cases"]
    assert outcome["ok"] is False and outcome["inputs"] == [
        {"name": "x", "dtype": "float32", "shape": [3], "value": None}
    ]
    worst = outcome["results"][0]["worst"]
    assert (worst["index"], worst["got"], worst["expected"]) == ([1], "inf", 2.0)
    assert outcome["findings"][0]["kind"] == "not-finite"


TENTH = float(torch.tensor(0.1, dtype=torch.float16))


def keep_from_a_tenth(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x >= TENTH, x, 0)


@pytest.mark.parametrize("size", [1, 7, 100])
def test_a_jump_in_the_reference_excuses_nothing(size):
    x = torch.full((size,), TENTH, dtype=torch.float16)
    right = kernel("from_a_tenth", "out[gid] = x[gid] >= 0.1h ? x[gid] : TYPE(0);", keep_from_a_tenth)
    assert metalwright.check(right, [case(x)]).ok
    wrong = kernel("from_a_float_tenth", "out[gid] = x[gid] >= 0.1f ? x[gid] : TYPE(0);", keep_from_a_tenth)
    outcome, finding = only(metalwright.check(wrong, [case(x)]))
    assert finding.kind == "value" and outcome.results[0].wrong == size
