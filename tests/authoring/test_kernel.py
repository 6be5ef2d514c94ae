"""MetalKernel: its MSL is executed, it traces as Core AI expects, it stands in for its parent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from coreai_torch import TorchConverter, TorchMetalKernel
from torch._subclasses.fake_tensor import FakeTensorMode

from metalwright.authoring import MetalKernel, MetalParameter, dtypes, execute, launch
from metalwright.errors import ArgumentError, CompileError, DispatchError, MemoryFault

Make = Callable[..., MetalKernel]
Over = Callable[..., dict[str, Any]]
FLOATS = [torch.float32, torch.float16, torch.bfloat16]
GID = [MetalParameter("gid", "uint", "thread_position_in_grid")]


def same(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def liar(x: torch.Tensor, y: torch.Tensor, alpha: float) -> torch.Tensor:
    """A reference of the right shape and the wrong values: results cannot come from it."""
    return torch.zeros_like(x)


# Executing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_scale_add(dtype: torch.dtype, make: Make, over: Over) -> None:
    kernel = make()
    x, y = torch.randn(2, 300, generator=torch.Generator().manual_seed(0)).to(dtype)
    out = kernel(x, y, 0.5, **over(300))
    assert out.dtype == dtype
    # each operation rounds: first the product, then the sum
    assert torch.equal(out, x + 0.5 * y)


def test_the_msl_runs_not_the_reference(make: Make, over: Over) -> None:
    x = torch.arange(8.0)
    assert torch.equal(make(torch_defn=liar)(x, x, 2.0, **over(8)), 3 * x)


@pytest.mark.parametrize("row", dtypes.ELEMENT_TYPES, ids=lambda row: row.name)
def test_every_element_type_goes_through(row: dtypes.ElementType, make: Make, over: Over) -> None:
    kernel = make("copy", input_names=["x"], torch_defn=same, src="T v = x[gid]; out[gid] = v;",
                  template_dtypes={"x": "T"})  # fmt: skip
    if row.kind == "float":
        x = torch.tensor([0.0, -1.5, 2.0**-14, float("inf")]).to(row.torch)
    elif row.kind == "bool":
        x = torch.tensor([True, False, False, True])
    else:
        info = torch.iinfo(torch.int32 if row.torch == torch.int64 else row.torch)
        x = torch.tensor([0, 1, info.max, info.min], dtype=row.torch)
    out = kernel(x, **over(4))
    assert out.dtype == row.torch
    assert out.tolist() == x.tolist()


def test_int64_is_int_in_the_kernel(make: Make, over: Over) -> None:
    """As in what Core AI converts: a sum past 32 bits wraps there, and so it does here."""
    kernel = make("size", input_names=["x"], torch_defn=same, template_dtypes={"x": "T"},
                  src="out[gid] = x[gid] + int(sizeof(T));")  # fmt: skip
    assert kernel(torch.tensor([1, -7]), **over(2)).tolist() == [5, -3]
    assert "device int," in kernel.source(torch.tensor([1, 2]))


def scalars(x: torch.Tensor, n: int, a: float, flag: bool) -> torch.Tensor:
    return x * a + n if flag else x - n


def test_scalars_are_locals_that_the_body_may_change(make: Make, over: Over) -> None:
    kernel = make("scalars", input_names=["x", "n", "a", "flag"], torch_defn=scalars, template_dtypes=None,
                  src="a = flag ? a : 1.0f; n = flag ? n : -n; out[gid] = x[gid] * a + float(n);")  # fmt: skip
    x = torch.arange(5.0)
    for n, a, flag in [(3, 2.0, True), (-4, 0.5, False), (2**31 - 1, 1.0, True), (np.int64(7), 3, 1)]:
        assert torch.equal(kernel(x, n, a, flag, **over(5)), scalars(x, int(n), float(a), bool(flag)))


def test_a_new_scalar_value_compiles_nothing(make: Make, over: Over, monkeypatch: pytest.MonkeyPatch) -> None:
    from metalwright.authoring import run

    kernel = make()
    x = torch.ones(4)
    kernel(x, x, 1.0, **over(4))
    monkeypatch.setattr(run, "compile_msl", None)
    assert kernel(x, x, 0.25, **over(4)).tolist() == [1.25] * 4
    assert kernel(torch.ones(9), torch.ones(9), 3.0, **over(9)).tolist() == [4.0] * 9


def test_an_edited_kernel_runs_as_edited(make: Make, over: Over) -> None:
    kernel = make()
    x = torch.ones(4)
    kernel(x, x, 1.0, **over(4))
    kernel.src = "out[gid] = 7;"
    assert kernel(x, x, 1.0, **over(4)).tolist() == [7.0] * 4


def plus(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y


def test_rank_0_tensor_input(make: Make, over: Over) -> None:
    kernel = make(
        "plus", input_names=["x", "y"], torch_defn=plus, src="out[gid] = x[gid] + y;", template_dtypes=None
    )
    for dtype in [torch.float32, torch.float16, torch.int32, torch.int64]:
        x, y = torch.arange(6).to(dtype), torch.tensor(3).to(dtype)
        assert torch.equal(kernel(x, y, **over(6)), x + y)


def test_rank_0_result_is_refused(make: Make, over: Over) -> None:
    kernel = make("plus", input_names=["x", "y"], torch_defn=plus, src="", template_dtypes=None)
    with pytest.raises(ArgumentError, match="rank 0"):
        kernel(torch.tensor(1.0), torch.tensor(1.0), **{**over(1), "result_shapes": [[]]})


def transposed(x: torch.Tensor) -> torch.Tensor:
    return x.T.contiguous()


def test_coordinates_are_reversed(make: Make) -> None:
    kernel = make("transposed", input_names=["x"], torch_defn=transposed, src="out[gid.y, gid.x] = x[gid.x, gid.y];",
                  metal_params=[MetalParameter("gid", "uint2", "thread_position_in_grid")],
                  template_dtypes=None)  # fmt: skip
    x = torch.arange(15.0).reshape(3, 5)
    out = kernel(x, threads_per_grid=(5, 3, 1), threads_per_thread_group=(4, 4, 1), result_shapes=[[5, 3]])
    assert torch.equal(out, x.T)


def test_helper_source_is_templated(make: Make, over: Over) -> None:
    kernel = make("helped", input_names=["x"], torch_defn=plus_one, src="out[gid] = bump(x[gid]);",
                  helper_src="static inline T bump(T v) { return v + T(1); }", template_dtypes={"x": "T"})  # fmt: skip
    x = torch.arange(4, dtype=torch.int16)
    assert torch.equal(kernel(x, **over(4)), x + 1)


def plus_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def min_max(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x - 1, x + 1


def min_max_list(x: torch.Tensor) -> list[torch.Tensor]:
    return [x - 1, x + 1]


@pytest.mark.parametrize(("reference", "kind"), [(min_max, tuple), (min_max_list, list)])
def test_several_results(reference: Any, kind: type, unique: Callable[[str], str], over: Over) -> None:
    arguments: dict[str, Any] = {"input_names": ["x"], "result_names": ["lo", "hi"], "torch_defn": reference,
                                 "src": "lo[gid] = x[gid] - 1; hi[gid] = x[gid] + 1;", "metal_params": GID}  # fmt: skip
    x = torch.arange(6.0)
    sizes = {**over(6), "result_shapes": [[6], [6]]}
    ours = MetalKernel(unique("several"), **arguments)(x, **sizes)
    parents = TorchMetalKernel(unique("several"), **arguments)(x, **sizes)
    assert type(ours) is type(parents) is kind
    assert all(torch.equal(a, b) for a, b in zip(ours, parents, strict=True))


def test_unwritten_elements_are_poison(make: Make, over: Over) -> None:
    kernel = make("half_done", input_names=["x"], torch_defn=same, src="if (gid < 2) out[gid] = x[gid];",
                  template_dtypes=None)  # fmt: skip
    out = kernel(torch.ones(4), **over(4))
    assert out[:2].tolist() == [1.0, 1.0] and out[2:].isnan().all()
    assert kernel(torch.ones(4, dtype=torch.uint8), **over(4)).tolist() == [1, 1, 0xA5, 0xA5]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool], ids=str)
def test_written_elements_are_recorded(dtype: torch.dtype, make: Make) -> None:
    kernel = make("half_done", input_names=["x"], torch_defn=same, src="if (gid < 2) out[gid] = x[gid];",
                  template_dtypes=None)  # fmt: skip
    execution = execute(kernel, [torch.ones(4, dtype=dtype)], (4, 1, 1), (4, 1, 1), [[4]], track_written=True)
    assert execution.written is not None
    assert execution.written[0].tolist() == [True, True, False, False]
    assert execution.report.threads == 4


def test_out_of_bounds_is_caught(make: Make, over: Over) -> None:
    kernel = make(
        "outside", input_names=["x"], torch_defn=same, src="out[gid + 1] = x[gid];", template_dtypes=None
    )
    with pytest.raises(MemoryFault) as caught:
        kernel(torch.ones(4), **over(4))
    assert kernel.name in str(caught.value) and f"{kernel.name}.src:1" in str(caught.value)


def test_compile_errors_show_the_users_line(make: Make, over: Over) -> None:
    kernel = make(src="\nTYPE a = x[gid];\nout[gid] = a + TYPE(bogus);\n")
    with pytest.raises(CompileError) as caught:
        kernel(torch.ones(4), torch.ones(4), 1.0, **over(4))
    message = str(caught.value)
    assert kernel.name in message and "bogus" in message and f"{kernel.name}.src:3" in message
    assert "out[gid] = a + TYPE(bogus);" in message, "the excerpt is what the user wrote"


def test_compile_errors_in_helpers(make: Make, over: Over) -> None:
    kernel = make(helper_src="\nstatic int f() { return nowhere; }\n")
    with pytest.raises(CompileError) as caught:
        kernel(torch.ones(4), torch.ones(4), 1.0, **over(4))
    assert f"{kernel.name}.helper_src:2" in str(caught.value)


def test_launch_of_arrays(make: Make) -> None:
    kernel = make()
    sizes: dict[str, Any] = {"threads_per_grid": (6, 1, 1), "threads_per_threadgroup": (4, 1, 1),
                             "result_shapes": [[6]]}  # fmt: skip
    for dtype in [np.float32, np.float16, ml_dtypes.bfloat16]:
        x = np.arange(6).astype(dtype)
        x.flags.writeable = False
        out = launch(kernel, [x, x, 2.0], **sizes)
        assert isinstance(out, np.ndarray) and out.dtype == dtype
        assert out.tolist() == [0.0, 3.0, 6.0, 9.0, 12.0, 15.0]


def test_launch_of_named_inputs(make: Make) -> None:
    kernel = make("plus", input_names=["x", "y"], torch_defn=plus, src="out[gid] = x[gid] + y[gid];",
                  template_dtypes=None)  # fmt: skip
    out = launch(kernel, {"y": np.arange(6), "x": np.ones(6, np.int64)}, threads_per_grid=(6, 1, 1),
                 threads_per_threadgroup=(4, 1, 1), result_shapes=[[6]])  # fmt: skip
    assert out.dtype == np.int64 and out.tolist() == [1, 2, 3, 4, 5, 6]


def test_launch_runs_a_plain_kernel(unique: Callable[[str], str], definition: dict[str, Any]) -> None:
    kernel = TorchMetalKernel(unique("plain"), **{**definition, "torch_defn": liar})
    out = launch(kernel, [torch.ones(4), torch.ones(4), 2.0], threads_per_grid=(4, 1, 1),
                 threads_per_threadgroup=(4, 1, 1), result_shapes=[[4]], workers=1, checked=False,
                 math_mode="fast")  # fmt: skip
    assert out.tolist() == [3.0] * 4


def test_reference(make: Make) -> None:
    kernel = make()
    assert kernel.reference(torch.ones(2), torch.ones(2), 3.0).tolist() == [4.0, 4.0]
    with pytest.raises(ArgumentError, match="expected 3 inputs"):
        kernel.reference(torch.ones(2))


def test_cases_is_a_method_or_set_on_the_object(make: Make, definition: dict[str, Any]) -> None:
    kernel = make()
    assert kernel.cases is None
    kernel.cases = lambda: [{"inputs": [torch.ones(2, 2), torch.ones(2, 2), 1.5]}]
    assert "dextents<int, 2>" in kernel.source()

    class WithCases(MetalKernel):
        def cases(self) -> Any:  # type: ignore[override]
            yield {"inputs": [torch.ones(2, 2, 2), torch.ones(2, 2, 2), 1.5]}

    assert "dextents<int, 3>" in WithCases("with_cases", **definition).source()


def test_threads_share_a_kernel(make: Make, over: Over) -> None:
    from concurrent.futures import ThreadPoolExecutor

    kernel = make()

    def one(n: int) -> bool:
        x = torch.full((n + 1,), float(n))
        return torch.equal(kernel(x, x, 1.0, **over(n + 1)), 2 * x)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(one, range(32)))


# Names used twice ---------------------------------------------------------------------------------------------------


def test_a_kernel_defined_again(make: Make, over: Over, definition: dict[str, Any]) -> None:
    """As when a notebook cell runs again; the older object, if it is still around, stays what it was."""
    old = make()
    new = MetalKernel(old.name, **{**definition, "src": "out[gid] = x[gid] - TYPE(alpha) * y[gid];"})
    x = torch.ones(4)
    assert new(x, x, 2.0, **over(4)).tolist() == [-1.0] * 4
    assert old(x, x, 2.0, **over(4)).tolist() == [3.0] * 4


def test_a_kernel_defined_again_with_other_inputs_traces(make: Make, over: Over) -> None:
    old = make()
    new = MetalKernel(old.name, ["x"], ["out"], "out[gid] = x[gid];", same, GID)
    meta = torch.ones(4, device="meta")
    for _ in range(2):
        assert old(meta, meta, 2.0, **over(4)).shape == (4,)
        assert new(meta, **over(4)).shape == (4,)


# Tracing ------------------------------------------------------------------------------------------------------------


class Model(torch.nn.Module):
    def __init__(self, kernel: TorchMetalKernel) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.kernel(x, x, 2.0, threads_per_grid=(x.shape[0], 1, 1), threads_per_thread_group=(8, 1, 1),
                           result_shapes=[list(x.shape)])  # fmt: skip


@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_program_executes_the_msl(strict: bool, make: Make) -> None:
    program = torch.export.export(Model(make(torch_defn=liar)), (torch.ones(4),), strict=strict)
    assert program.module()(torch.ones(4)).tolist() == [3.0] * 4
    assert program.run_decompositions().module()(torch.ones(4)).tolist() == [3.0] * 4


def test_a_dynamic_program_executes_the_msl(make: Make) -> None:
    program = torch.export.export(
        Model(make(torch_defn=liar)),
        (torch.ones(4),),
        dynamic_shapes={"x": {0: torch.export.Dim("n", min=2, max=99)}},
    )
    assert program.module()(torch.ones(37)).tolist() == [3.0] * 37


def test_a_compiled_model_executes_the_msl(make: Make) -> None:
    compiled = torch.compile(Model(make(torch_defn=liar)), backend="eager", fullgraph=True)
    assert compiled(torch.ones(4)).tolist() == [3.0] * 4


def test_the_graph_is_core_ais(make: Make, unique: Callable[[str], str], definition: dict[str, Any]) -> None:
    """The operator has the name, the operands and the metadata of the one that the parent class registers."""
    ours = make()
    plain = TorchMetalKernel(unique("scale_add"), **definition)

    def operands(kernel: TorchMetalKernel) -> list[Any]:
        graph = torch.export.export(Model(kernel), (torch.ones(4),)).graph
        (node,) = (n for n in graph.nodes if "coreai_metal_kernels" in str(n.target))
        assert str(node.target) == f"coreai_metal_kernels.{kernel.name}.default"
        value = node.meta["val"]
        return [*map(str, node.args), value.shape, value.dtype]

    assert operands(ours) == operands(plain)
    assert str(ours.torch_custom_op._opoverload._schema).replace(ours.name, "k") == str(
        plain.torch_custom_op._opoverload._schema
    ).replace(plain.name, "k")


def test_fake_and_meta_tensors_trace(make: Make, over: Over) -> None:
    kernel = make()
    with FakeTensorMode():
        fake = kernel(torch.ones(4), torch.ones(4), 2.0, **over(4))
    assert type(fake).__name__ == "FakeTensor" and fake.shape == (4,)
    meta = torch.ones(4, device="meta")
    assert kernel(meta, meta, 2.0, **over(4)).device.type == "meta"


def test_a_dispatch_mode_sees_the_operator_and_it_executes(make: Make, over: Over) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    kernel = make(torch_defn=liar)
    x = torch.ones(4)
    with Watch():
        out = kernel(x, x, 2.0, **over(4))
    assert out.tolist() == [3.0] * 4
    assert any(kernel.name in name for name in seen)


def test_tracing_refuses_what_a_gpu_would(make: Make, over: Over) -> None:
    kernel = make()
    meta = torch.ones(8, device="meta")
    with pytest.raises(DispatchError, match="at most 1024"):
        kernel(meta, meta, 2.0, **{**over(8), "threads_per_thread_group": (1025, 1, 1)})
    with pytest.raises(ArgumentError, match=r"result_shapes says \[4\], the reference returns \[8\]"):
        kernel(meta, meta, 2.0, **{**over(8), "result_shapes": [[4]]})
    with pytest.raises(ArgumentError, match="finite"):
        kernel(meta, meta, float("inf"), **over(8))
    with pytest.raises(ArgumentError, match="contiguous"):
        kernel(torch.ones(16, device="meta")[::2], meta, 1.0, **over(8))
    with pytest.raises(ArgumentError, match="expected 3 inputs"):
        kernel(meta, **over(8))


def test_register_custom_kernels_takes_it(make: Make) -> None:
    TorchConverter().register_custom_kernels([make()])


def test_no_gradient_is_an_error_not_a_zero(make: Make, over: Over) -> None:
    kernel = make()
    x = torch.ones(4, requires_grad=True)
    out = kernel(x, x.detach(), 2.0, **over(4))
    assert out.tolist() == [3.0] * 4 and out.requires_grad
    with pytest.raises(Exception, match="no gradient"):
        out.sum().backward()
    with torch.no_grad():
        assert not kernel(x, x, 2.0, **over(4)).requires_grad
