"""Kernels that look like a bad one and are right, and bad ones that look different from the examples."""

import pytest

KERNEL = '''
def reference(x: torch.Tensor) -> torch.Tensor:
    return x.clone()

kernel = MetalKernel(
    "k", ["x"], ["out"], torch_defn=reference, helper_src="""HELPERS""", math_mode="MODE",
    metal_params=[MetalParameter(n, "uint", a) for n, a in (
        ("gid", "thread_position_in_grid"), ("row", "threadgroup_position_in_grid"),
        ("tid", "thread_index_in_threadgroup"), ("lane", "thread_index_in_simdgroup"),
        ("simdgroup", "simdgroup_index_in_threadgroup"), ("threads", "threads_per_threadgroup"))],
    src="""
SRC
    """,
)
kernel.cases = lambda: [{"inputs": [random(SHAPE)], "threads_per_grid": GRID,
                         "threads_per_thread_group": GROUP, "result_shapes": [SHAPE]}]
'''


def kernel(src, helpers="", mode="safe", shape=(4, 512), grid=(1024, 1, 1), group=(256, 1, 1)):
    text = KERNEL.replace("SRC", src).replace("HELPERS", helpers).replace("MODE", mode)
    return text.replace("SHAPE", repr(shape)).replace("GRID", repr(grid)).replace("GROUP", repr(group))


SUM = "float s = 0.0f; for (uint i = tid; i < 512; i += threads) s += x[i, row];\n"
NONE = "threadgroup_barrier(mem_flags::mem_none);"
SHARED = "threadgroup_barrier(mem_flags::mem_threadgroup);"
MATVEC = "float s = 0.0f; for (uint i = lane; i < 512; i += 32) s += x[i, simdgroup];\ns = simd_sum(s);\n"

SILENT = {
    "a sum of each simdgroup's own row": (MATVEC + "if (lane == 0) out[0, simdgroup] = s;", {}),
    "every simdgroup sums the same, thread 0 writes": (
        "float s = 0.0f; for (uint i = lane; i < 512; i += 32) s += x[i, row];\ns = simd_sum(s);\nif (tid == 0) out[0, row] = s;",
        {},
    ),
    "one simdgroup in the threadgroup": (SUM + "out[0, row] = simd_sum(s);", {"group": (32, 1, 1)}),
    "only the first simdgroup works": (
        "if (tid < 32) { float s = simd_sum(x[tid, row]); if (tid == 0) out[0, row] = s; }", {},
    ),
    "rows as wide as a simdgroup": ("out[gid, 0] = x[gid, 0] / simd_sum(x[gid, 0]);", {}),
    "combined through threadgroup memory": (
        "threadgroup float p[8];\n" + SUM + "s = simd_sum(s);\nif (lane == 0) p[simdgroup] = s;\n" + SHARED
        + "\nfloat t = 0.0f; for (uint i = 0; i < 8; ++i) t += p[i];\nif (tid == 0) out[0, row] = t;", {},
    ),
    "a commented barrier": (f"threadgroup float t[256]; t[tid] = x[gid, 0]; // {NONE}\n{SHARED}\nout[gid, 0] = t[255 - tid];", {}),
    "a barrier in a string's place": (f"threadgroup float t[256]; t[tid] = x[gid, 0]; /* {NONE} */ {SHARED}\nout[gid, 0] = t[255 - tid];", {}),
    "each thread reads its own element": (f"threadgroup float t[256]; t[tid] = x[gid, 0]; {NONE}\nout[gid, 0] = t[tid];", {}),
    "a second barrier covers it": (f"threadgroup float t[256]; t[tid] = x[gid, 0]; {NONE} {SHARED}\nout[gid, 0] = t[255 - tid];", {}),
    "code that is off": (f"#if 0\nthreadgroup float t[256]; t[tid] = 1; {NONE} out[gid, 0] = t[1];\n#endif\nout[gid, 0] = 1;", {}),
    "a stride by the threadgroup from inside it": ("for (uint i = tid; i < 512; i += threads) out[i, row] = x[i, row];", {}),
    "a grid of one threadgroup": (
        "for (uint i = gid; i < 512; i += threads) out[i, 0] = x[i, 0];", {"grid": (256, 1, 1)},
    ),
    "isnan in a comment": ("out[gid, 0] = x[gid, 0]; // isnan(x)", {"mode": "fast"}),
    "unrolled private array": (
        "float v[N]; for (uint i = 0; i < N; ++i) v[i] = x[i, 0];\nfloat s = 0; for (uint i = 0; i < N / 2; ++i) s += v[2 * i + 1];\nout[gid, 0] = s;",
        {"helpers": "constant constexpr uint N = 8;"},
    ),
    "a table of constants": ("const float t[4] = {1, 2, 3, 4}; out[gid, 0] = t[gid & 3];", {}),
    "an index that wraps on purpose": ("out[(gid * 2654435761u) >> 20, 0] = 1;", {}),
    "a product that fits": ("device const float* p = &x[0, 0]; out[gid, 0] = p[row * x.get_extent(0) + tid];", {}),
    "a large product that is no index": (
        "uint big = row * x.get_extent(0) * 4096; out[gid, 0] = big;", {"shape": (4096, 4096), "grid": (4096 * 256, 1, 1)},
    ),
}  # fmt: skip

FOUND = {
    "unguarded": ("MW101", "s = simd_sum(s);", SUM + "s = simd_sum(s);\nout[0, row] = s;", {}),
    "lane 0 of each": ("MW101", "simd_sum", SUM + "float t = simd_sum(s);\nif (lane == 0) { out[0, row] = t; }", {}),
    "normalised by a part": (
        "MW101", "simd_max",
        "float m = -INFINITY; for (uint i = tid; i < 512; i += 256) m = max(m, x[i, row]);\nm = simd_max(m);\n"
        "for (uint i = tid; i < 512; i += 256) out[i, row] = x[i, row] - m;", {},
    ),
    "device memory": (
        "MW104", "mem_threadgroup", f"out[tid, row] = x[tid, row];\n{SHARED}\nif (tid == 0) out[0, row] = out[255, row];", {},
    ),
    "in a loop": (
        "MW104", "mem_none",
        f"threadgroup float t[256];\nfor (uint i = 0; i < 2; ++i) {{ t[tid] = x[tid, i];\n{NONE}\nout[tid, i] = t[255 - tid];\n{SHARED} }}", {},
    ),
    "a literal stride": ("MW105", "i += 256", "for (uint i = gid; i < 512; i += 256) out[i, 0] = x[i, 0];", {}),
    "x != x": ("MW102", "v != v", "float v = x[gid, 0];\nout[gid, 0] = v != v ? 0.0f : v;", {"mode": "fast"}),
    "isinf in a helper": (
        "MW102", "isinf", "out[gid, 0] = f(x[gid, 0]);", {"mode": "fast", "helpers": "\nfloat f(float v) { return isinf(v) ? 0 : v; }"},
    ),
    "by a position": ("MW103", "v[tid & 3]", "float v[4];\nfor (int i = 0; i < 4; ++i) v[i] = i;\nout[gid, 0] = v[tid & 3];", {}),
    "only just": ("MW106", "t[32]", "threadgroup float t[32][256];\nt[0][tid] = 1; out[gid, 0] = t[0][tid];", {}),
    "through variables": (
        "MW107", "row * width", "uint width = x.get_extent(0);\nuint from = row * width;\nout[gid, 0] = (&x[0, 0])[from + tid];",
        {"shape": (70000, 70000), "grid": (70000 * 256, 1, 1)},
    ),
    "widened too late": (
        "MW107", "row * width", "int width = x.get_extent(0);\nulong from = row * width;\nout[gid, 0] = (&x[0, 0])[from + tid];",
        {"shape": (70000, 70000), "grid": (70000 * 256, 1, 1)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SILENT)
def test_silent(name, rules_of):
    src, options = SILENT[name]
    assert rules_of(kernel(src, **options)) == []


@pytest.mark.parametrize("name", FOUND)
def test_found_at_its_line(name, lint_file):
    rule, line, src, options = FOUND[name]
    findings = lint_file(kernel(src, **options)).findings
    assert [finding.rule for finding in findings] == [rule]
    finding = findings[0]
    assert finding.site and finding.excerpt and line in finding.excerpt
    where = (finding.site.file == "k.src" and src) or options["helpers"]
    # the first line of src is the one that the text begins on
    lines = ["", *where.split("\n")] if finding.site.file == "k.src" else where.split("\n")
    assert lines[finding.site.line - 1].strip() == finding.excerpt.strip()


REFERENCES = {
    "shapes": ("int(x.shape[0]) * x / float(x.size(1))", []),
    "item": ("x * x.max().item()", ["MW301"]),
    "list": ("torch.stack([x[i] for i in x[0].long().tolist()])", ["MW301"]),
    "fused": ("torch.nn.functional.scaled_dot_product_attention(x, x, x)", ["MW304"]),
    "method": ("(x @ x.T).softmax(-1) @ x", ["MW304"]),
    "softmax of a product": ("torch.softmax(x @ x.T, -1)", []),
    "product of a softmax": ("torch.softmax(x, -1) @ x.T", []),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_reference(name, rules_of):
    expression, expected = REFERENCES[name]
    assert rules_of(kernel("out[gid, 0] = x[gid, 0];").replace("x.clone()", expression)) == expected


CALLS = {
    "bfloat": ("kernel(state.to(torch.bfloat16), **sizes)", ["MW302"]),
    "by a variable": ("kernel(wide, **sizes)", ["MW302"]),
    "indices": ("kernel(state.int(), **sizes)", []),
    "made on the spot": ("kernel(torch.ones(4).half(), **sizes)", []),
    "result": ("kernel(state, **sizes).to(torch.float16)", ["MW302"]),
    "permuted": ("kernel(state.permute(1, 0)[None], **sizes)", ["MW303"]),
    "copied": ("kernel(state.transpose(0, 1).contiguous(), **sizes)", []),
    "reshaped": ("kernel(state.reshape(1, -1), **sizes)", []),
}


@pytest.mark.parametrize("name", CALLS)
def test_call(name, rules_of):
    call, expected = CALLS[name]
    module = f"\ndef forward(state, sizes):\n    wide = state.float()\n    return {call}\n"
    assert rules_of(kernel("out[gid, 0] = x[gid, 0];") + module) == expected
