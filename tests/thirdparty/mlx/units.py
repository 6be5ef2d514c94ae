"""What is compiled: for each file of MLX, what stands before it and its kernels' template arguments.

MLX compiles most of its kernels when they are first called: a preamble, a header, and a line that instantiates one
template (``jit_kernels.cpp``). A unit here is one such text.
"""

from __future__ import annotations

from dataclasses import dataclass

from headers import KERNELS


@dataclass(frozen=True)
class Unit:
    """One text for the compiler.

    Attributes:
        file: the header that is under test, below MLX's folder of kernels.
        before: headers that have to stand before it.
        kernels: host name, template and its arguments of each kernel; a template without arguments is a plain kernel.
        constants: values of function constants.
        text: more source, before the header that is under test.
        recursion: how many calls of a function that calls itself may be nested.
    """

    file: str
    before: tuple[str, ...]
    kernels: tuple[tuple[str, str, str], ...]
    constants: tuple[tuple[int, bool | int], ...] = ()
    text: str = ""
    recursion: int = 0

    @property
    def source(self) -> str:
        lines = [f'#include "{KERNELS}/{name}"' for name in self.before]
        lines += [self.text, f'#include "{KERNELS}/{self.file}"']
        lines += [
            f'template [[host_name("{host}")]] [[kernel]] decltype({template}<{arguments}>) {template}<{arguments}>;'
            for host, template, arguments in self.kernels
            if arguments
        ]
        return "\n".join(lines) + "\n"


UTILS = ("utils.h",)
GEMM = ("utils.h", "steel/gemm/gemm.h")
GEMM_NAX = ("utils.h", "steel/gemm/gemm_nax.h")
QUANTIZED = (*GEMM, "quantized_utils.h")
QUANTIZED_NAX = (*GEMM_NAX, "quantized_utils.h")
CONV = ("utils.h", "steel/conv/conv.h")


def one(file: str, before: tuple[str, ...], template: str, arguments: str) -> Unit:
    """Return a unit of a single kernel."""
    return Unit(file, before, ((template, template, arguments),))


def each(arguments: dict[str, str]) -> tuple[tuple[str, str, str], ...]:
    """Return kernels whose host name is the template's."""
    return tuple((name, name, value) for name, value in arguments.items())


def hadamard(order: int) -> list[list[int]]:
    """Return a Hadamard matrix by Paley's constructions.

    The first needs ``order - 1`` to be a prime that is 3 modulo 4, the second ``order / 2 - 1`` to be one that is 1.
    """
    prime = all((order - 1) % i for i in range(2, order - 1))
    if not prime:
        # each element of a symmetric matrix becomes two by two
        blocks = {0: ((1, -1), (-1, -1)), 1: ((1, 1), (1, -1)), -1: ((-1, -1), (-1, 1))}
        conference = _conference(order // 2 - 1, 1)
        return [[x for value in row for x in blocks[value][i]] for row in conference for i in (0, 1)]
    return [
        [value + (i == j) for j, value in enumerate(row)] for i, row in enumerate(_conference(order - 1, -1))
    ]


def _conference(q: int, sign: int) -> list[list[int]]:
    """Return a matrix of zeros on the diagonal, ones in the first row and ``sign`` below: which differences are squares."""
    squares = {i * i % q for i in range(1, q)}
    jacobsthal = [[0 if i == j else 1 if (i - j) % q in squares else -1 for j in range(q)] for i in range(q)]
    return [[0] + [1] * q, *([sign, *row] for row in jacobsthal)]


def radix(order: int) -> str:
    """Return the function that MLX generates for ``hadamard_m``: a product with a Hadamard matrix, in place."""
    if order == 1:
        return "METAL_FUNC void hadamard_radix_m(thread float*) {}"
    sums = [
        " ".join(f"{'+' if value > 0 else '-'} x[{j}]" for j, value in enumerate(row))
        for row in hadamard(order)
    ]
    lines = [f"  float y{i} = {terms};" for i, terms in enumerate(sums)]
    lines += [f"  x[{i}] = y{i};" for i in range(order)]
    return "\n".join(["METAL_FUNC void hadamard_radix_m(thread float* x) {", *lines, "}"])


ALIGNED = ((200, True), (201, True), (202, True))
GEMM_CONSTANTS = ((10, False), (100, False), (110, False), *ALIGNED)
# fft of 4: no Rader, one step of radix 2 twice
FFT = ((0, False), (1, True), (2, 4), (3, 1), *((i, 0) for i in range(4, 22)), (22, False))

ALL: tuple[Unit, ...] = (
    Unit("arange.h", UTILS, each({"arange": "float"})),
    Unit(
        "unary.h",
        ("utils.h", "unary_ops.h"),
        each(
            {
                "unary_v": "float,float,Exp",
                "unary_v2": "half,half,Erf",
                "unary_g": "complex64_t,complex64_t,Exp,4",
            }
        ),
    ),
    Unit(
        "binary.h",
        ("utils.h", "binary_ops.h"),
        each(
            {
                **{
                    k: "float, float, Add"
                    for k in "binary_ss binary_sv binary_vs binary_vv binary_sv2 binary_vs2 binary_vv2 binary_g_nd1 binary_g_nd2 binary_g_nd3 binary_g".split()
                },
                "binary_g": "complex64_t,complex64_t,Multiply,4",
            }
        ),
    ),
    Unit(
        "binary_two.h",
        ("utils.h", "binary_ops.h"),
        each(
            {
                k: "float,float,DivMod"
                for k in "binary_ss binary_sv binary_vs binary_vv binary_sv2 binary_vs2 binary_vv2 binary_g_nd1 binary_g_nd2 binary_g_nd3 binary_g".split()
            }
        ),
    ),
    Unit(
        "ternary.h",
        ("utils.h", "ternary_ops.h"),
        each(
            {
                "ternary_v": "float,Select,false,false",
                "ternary_v2": "float,Select,true,false",
                "ternary_g_nd1": "float,Select",
                "ternary_g_nd2": "float,Select",
                "ternary_g_nd3": "float,Select",
                "ternary_g": "float,Select,4",
            }
        ),
    ),
    Unit(
        "copy.h",
        UTILS,
        each(
            {
                k: "float,half"
                for k in "copy_s copy_v copy_s2 copy_v2 copy_g_nd1 copy_g_nd2 copy_g_nd3 copy_g copy_gg_nd1 copy_gg_nd2 copy_gg_nd3 copy_gg copy_gg_dynamic_nd1 copy_gg_dynamic_nd2 copy_gg_dynamic_nd3 copy_gg_dynamic".split()
            }
        ),
    ),
    Unit(
        "reduction/reduce_all.h",
        ("utils.h", "reduce_utils.h"),
        each({"all_reduce": "float,float,Sum<float>"}),
    ),
    Unit("reduction/reduce_init.h", ("utils.h", "reduce_utils.h"), each({"init_reduce": "float,Max<float>"})),
    Unit(
        "reduction/reduce_row.h",
        ("utils.h", "reduce_utils.h"),
        each(
            {
                "row_reduce_small": "float,float,Sum<float>,int,1",
                "row_reduce_simple": "half,half,Max<half>",
                "row_reduce_looped": "complex64_t,complex64_t,Sum<complex64_t>,int,2",
            }
        ),
    ),
    Unit(
        "reduction/reduce_col.h",
        ("utils.h", "reduce_utils.h"),
        each(
            {
                "col_reduce_small": "float,float,Sum<float>,int,1",
                "col_reduce_longcolumn": "half,half,Max<half>,int,1",
                "col_reduce_looped": "bool,bool,And<bool>,int,1,32,32",
                "col_reduce_2pass": "int,int,Prod<int>,int,1,32,32",
            }
        ),
    ),
    Unit("softmax.h", UTILS, each({"softmax_single_row": "half,float", "softmax_looped": "half,float"})),
    Unit("logsumexp.h", UTILS, each({"logsumexp": "half", "logsumexp_looped": "float"})),
    Unit("cross_entropy.h", UTILS, each({"cross_entropy": "float", "cross_entropy_vjp": "float"})),
    Unit(
        "scan.h",
        UTILS,
        each(
            {
                "contiguous_scan": "float,float,CumSum<float>,4,true,false",
                "strided_scan": "float,float,CumSum<float>,4,true,false",
            }
        ),
    ),
    Unit(
        "sort.h",
        UTILS,
        each(
            {
                "block_sort": "float,float,false,128,4",
                "block_sort_nc": "float,uint,true,128,4",
                "mb_block_sort": "float,uint,true,128,4",
                "mb_block_partition": "float,uint,true,128,4",
                "mb_block_merge": "float,uint,true,128,4",
            }
        ),
    ),
    Unit("searchsorted.h", ("utils.h", "sort.h"), each({"searchsorted": "float,true"})),
    Unit("dot.h", (), each({"dot_product": "float,4,256,8"})),
    Unit(
        "gemv.h",
        (),
        each(
            {
                "gemv": "float,1,8,1,32,4,4,false,false",
                "gemv_t": "float,1,2,8,4,4,4,true,false",
                "gemv_gather": "float,1,8,1,32,4,4",
                "gemv_t_gather": "float,1,2,8,4,4,4",
                "gemv_wide": "float,2,32",
                "gemv_wide_gather": "float,2,32",
            }
        ),
        ((0, False), (1, False)),
    ),
    Unit(
        "gemv_masked.h",
        UTILS,
        each(
            {
                "gemv_masked": "float,bool,bool,1,1,1,32,1,4,false",
                "gemv_t_masked": "float,nomask_t,bool,1,2,8,4,4,4,true",
            }
        ),
    ),
    Unit(
        "hadamard.h",
        UTILS,
        each({"hadamard_n": "float,64,8,4", "hadamard_m": "float,16,12,4"}),
        text=radix(12),
    ),
    Unit(
        "fft.h",
        (),
        (
            *each(
                {
                    "fft": "256,float2,float2",
                    "rader_fft": "256,float2,float2",
                    "bluestein_fft": "256,float2,float2",
                    "four_step_fft": "256,float2,float2,0,false",
                }
            ),
            ("generate_bluestein_twiddles", "generate_bluestein_twiddles", ""),
        ),
        FFT,
    ),
    Unit(
        "quantized.h",
        QUANTIZED,
        each(
            {
                "affine_qmv_quad": "float,64,4,64,false",
                "affine_qmv_fast": "half,64,4,false",
                "affine_qmv": "float,64,3,false",
                "affine_qmv_wide": "float,64,4,2,32,false",
                "affine_qvm": "float,64,6,false",
                "affine_qvm_split_k": "float,64,4",
                "affine_gather_qmv_fast": "float,64,4",
                "affine_gather_qmv": "float,64,5",
                "affine_gather_qvm": "float,64,2",
                "affine_quantize": "float,64,4",
                "affine_dequantize": "float,64,8",
            }
        ),
        ALIGNED,
    ),
    Unit(
        "quantized.h",
        QUANTIZED,
        each(
            {
                "affine_qmm_t": "float,64,4,true,false",
                "affine_qmm_t_splitk": "float,64,4,true",
                "affine_qmm_n": "float,64,4,false",
                "affine_gather_qmm_t": "float,64,4,true",
                "affine_gather_qmm_n": "float,64,4",
                "affine_gather_qmm_rhs": "float,64,4,16,32,32,1,2,true",
            }
        ),
        ALIGNED,
    ),
    Unit(
        "fp_quantized.h",
        QUANTIZED,
        each(
            {
                "fp_qmv_quad": "float,32,4,64,false",
                "fp_qmv_fast": "half,32,4,false",
                "fp_qmv": "float,16,4,false",
                "fp_qmv_wide": "float,32,8,2,32,false",
                "fp_qvm": "float,32,8,false",
                "fp_qvm_split_k": "float,32,4",
                "fp_gather_qmv_fast": "float,32,4",
                "fp_gather_qmv": "float,32,4",
                "fp_gather_qvm": "float,32,4",
                "fp_quantize": "float,32,4,false",
                "fp_dequantize": "float,32,8,false",
                "fp_quantize_dequantize": "float,16,4,false",
            }
        ),
        ALIGNED,
    ),
    Unit(
        "fp_quantized.h",
        QUANTIZED,
        each(
            {
                "fp_qmm_t": "float,32,4,true,false",
                "fp_qmm_t_splitk": "float,32,4,true",
                "fp_qmm_n": "float,32,4,false",
                "fp_gather_qmm_t": "float,32,4,true",
                "fp_gather_qmm_n": "float,32,4",
                "fp_gather_qmm_rhs": "float,32,4,16,32,32,1,2,true",
            }
        ),
        ALIGNED,
    ),
    Unit("indexing/gather_axis.h", UTILS, each({"gather_axis": "float,int,int,true,true"})),
    Unit("indexing/gather_front.h", UTILS, each({"gather_front": "float,int,int,4"})),
    Unit("indexing/masked_scatter.h", UTILS, each({"masked_assign_impl": "float,true"})),
    Unit(
        "indexing/scatter.h",
        ("utils.h", "reduce_utils.h"),
        each({"slice_update_op_impl": "float,int,Sum<float>,true,true,false,1,1"}),
    ),
    Unit(
        "indexing/scatter_axis.h",
        ("utils.h", "reduce_utils.h"),
        each({"scatter_axis": "float,int,int,Sum<float>,true,true"}),
    ),
    Unit("indexing/gather.h", UTILS, ()),
    Unit(
        "sdpa_vector.h",
        UTILS,
        each(
            {
                "sdpa_vector": "float,64,64",
                "sdpa_vector_2pass_1": "half,64,64",
                "sdpa_vector_2pass_1_gqa": "half,64,64,4,1",
                "sdpa_vector_2pass_2": "half,64",
            }
        ),
        (*((i, False) for i in range(20, 26)), (26, 1)),
    ),
    Unit(
        "sdpa_blocked.h",
        UTILS,
        each({"sdpa_blocked_scale_copy": "float", "sdpa_blocked_causal_mask": "float"}),
    ),
    Unit(
        "gated_delta_update.h",
        (),
        each({"gated_delta_seq": "half,64,64,2,2,0", "gated_delta_fused_chunk": "float,32,32,1,1,16"}),
    ),
    Unit("gated_delta_update_vjp.h", (), each({"gated_delta_vjp_seq": "float,32,32,1,1,16"})),
    Unit(
        "steel/gemm/kernels/steel_gemm_fused.h",
        GEMM,
        each({"gemm": "float,32,32,16,2,2,false,false"}),
        GEMM_CONSTANTS,
    ),
    Unit(
        "steel/gemm/kernels/steel_gemm_masked.h",
        GEMM,
        each({"block_masked_gemm": "float,bool,bool,32,32,16,2,2,false,false,false,false"}),
    ),
    Unit(
        "steel/gemm/kernels/steel_gemm_gather.h",
        GEMM,
        each(
            {"gather_mm_rhs": "float,16,32,16,1,2,false,false", "gather_mm": "float,32,32,16,2,2,false,false"}
        ),
        GEMM_CONSTANTS,
    ),
    Unit(
        "steel/gemm/kernels/steel_gemm_segmented.h",
        GEMM,
        each({"segmented_mm": "float,32,32,16,2,2,false,false"}),
        (*GEMM_CONSTANTS, (199, True)),
    ),
    Unit(
        "steel/gemm/kernels/steel_gemm_splitk.h",
        GEMM,
        each(
            {
                "gemm_splitk": "float,float,32,32,16,2,2,false,false,true,true",
                "gemm_splitk_accum": "float,float",
                "gemm_splitk_accum_axpby": "float,float",
            }
        ),
    ),
    # these are units of test_steel_nax.py, not to compile others
    Unit(
        "steel/gemm/kernels/steel_gemm_fused_nax.h",
        GEMM_NAX,
        each({"gemm": "half, 64, 64, 256, 2, 2, false, true, float"}),
        GEMM_CONSTANTS,
    ),
    Unit(
        "steel/gemm/kernels/steel_gemm_gather_nax.h",
        GEMM_NAX,
        each({"gather_mm_rhs_nax": "bfloat16_t, 16, 128, 128, 1, 4, false, false, float"}),
        ((200, False), (201, True), (202, True)),
    ),
    Unit(
        "steel/gemm/kernels/steel_gemm_segmented_nax.h",
        GEMM_NAX,
        each({"segmented_mm_nax": "float, 64, 64, 128, 2, 2, true, false, float"}),
        ((199, False), (200, True), (201, True)),
    ),
    Unit(
        "steel/gemm/kernels/steel_gemm_splitk_nax.h",
        GEMM_NAX,
        each({"gemm_splitk_nax": "half, 64, 64, 256, 2, 2, true, false, float"}),
        ((200, True), (201, True)),
    ),
    Unit(
        "steel/gemm/kernels/steel_gemm_thin_nax.h",
        GEMM_NAX,
        each({"gemm_thin_nax": "half, 2, 2, 1, 2, 2, true"}),
        ((100, True), (110, False), *ALIGNED),
    ),
    Unit(
        "steel/attn/kernels/steel_attention_nax.h",
        UTILS,
        each(
            {"attention_nax": "half,64,32,64,64,4,1,half", "attention_nax_dsplit": "half,64,32,256,4,2,half"}
        ),
        ((200, True), (201, True), (300, False), (301, False), (302, False), (303, False)),
    ),
    Unit(
        "steel/attn/kernels/steel_attention.h",
        UTILS,
        each({"attention": "float,32,32,64,64,4,1,float,float"}),
        ((200, True), (201, True), (300, False), (301, False), (302, False)),
    ),
    Unit("steel/conv/kernels/steel_conv.h", CONV, each({"implicit_gemm_conv_2d": "float,32,32,16,2,2"})),
    Unit("steel/conv/kernels/steel_conv_3d.h", CONV, each({"implicit_gemm_conv_3d": "float,32,32,16,2,2"})),
    Unit(
        "steel/conv/kernels/steel_conv_general.h",
        CONV,
        each({"implicit_gemm_conv_2d_general": "float,32,32,16,2,2"}),
    ),
)
