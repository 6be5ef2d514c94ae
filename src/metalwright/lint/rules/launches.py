"""MW2xx: sizes of launches, as the kernel's cases have them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from coreai.authoring.metal import PARAMETER_LIMIT

from metalwright.lint.bounds import loop_of
from metalwright.lint.expressions import Node
from metalwright.lint.msl import Access
from metalwright.lint.rule import Hit, Rule
from metalwright.lint.subject import Launch, Subject

# a kernel that asks for these knows that a threadgroup may be partial
_ACTUAL_SIZES = frozenset(
    {"threads_per_threadgroup", "simdgroups_per_threadgroup", "threads_per_grid", "threadgroups_per_grid"}
)


def _one_thread(subject: Subject) -> Iterator[Hit]:
    for launch in subject.launches:
        if launch.threads == 1 and math.prod(launch.grid) > 1:
            yield subject.launch_hit(
                f"{launch.name!r} has threadgroups of one thread and {math.prod(launch.grid)} of them: a "
                f"simdgroup runs "
                "32 lanes, and 31 of them are idle"
            )
            return


def _partial_tiles(subject: Subject) -> Iterator[Hit]:
    if not subject.body.calls("threadgroup_barrier") or _ACTUAL_SIZES & set(subject.attributes.values()):
        return
    for variable in subject.body.variables:
        if variable.space != "threadgroup" or not variable.dimensions:
            continue
        for launch in subject.launches:
            accesses = [
                a for a in subject.body.accesses(variable.name) if variable.index < a.at < variable.end
            ]
            found = next(
                (
                    one
                    for d in range(len(variable.dimensions))
                    if (one := _unfilled(subject, accesses, d, launch))
                ),
                None,
            )
            if found is not None:
                axis, read = found
                left, whole = launch.grid[axis] % launch.group[axis], launch.group[axis]
                yield subject.hit(
                    subject.body,
                    read.at,
                    f"{launch.name!r} has {launch.grid[axis]} threads along {'xyz'[axis]} in threadgroups "
                    f"of {whole}: "
                    f"the last has {left}, which fill {left} of {whole} elements of {variable.name!r}, and "
                    f"all are read; "
                    "round the grid up, and let the threads past the edge write nothing",
                )
                break


def _unfilled(
    subject: Subject, accesses: list[Access], dimension: int, launch: Launch
) -> tuple[int, Access] | None:
    """Return the axis along which too few threads fill a dimension of an array, and where all of it is "
    "read."""
    writes = [a for a in accesses if a.writes]
    reads = [a for a in accesses if a.reads and not a.writes]
    if not writes or any(len(a.indices) <= dimension for a in accesses):
        return None
    axes = {_axis(subject, a.indices[dimension], launch) for a in writes}
    axis = axes.pop() if len(axes) == 1 else None
    if axis is None or launch.grid[axis] % launch.group[axis] == 0:
        return None
    left = launch.grid[axis] % launch.group[axis]
    for read in reads:
        end = _reads_up_to(subject, read.indices[dimension])
        if end is not None and end > left:
            return axis, read
    return None


def _axis(subject: Subject, index: Node, launch: Launch) -> int | None:
    attribute, _, component = subject.attribute(index).partition(".")
    if attribute == "thread_position_in_threadgroup":
        return "xyz".index(component)
    if attribute == "thread_index_in_threadgroup" and launch.group[1:] == (1, 1):
        return 0
    return None


def _reads_up_to(subject: Subject, index: Node) -> int | None:
    """Return how many elements a loop with constant bounds reads."""
    loop = loop_of(subject, index)
    test = loop.expressions[1] if loop else None
    if test is None or test.kind != "binary" or test.text != "<" or test.parts[0].text != index.text:
        return None
    return subject.body.constant(test.parts[1])


def _simdgroups(subject: Subject) -> Iterator[Hit]:
    for code in subject.codes:
        for i in range(len(code)):
            if code.text(i) != "execution_simdgroups" or code.text(i + 1) != "<" or code.text(i + 3) != ">":
                continue
            text = code.text(i + 2)
            count = int(text) if text.isdecimal() else code.constants.get(text)
            if count is None and (variable := code.variable(text, i)) is not None:
                count = code.constant(variable.value) if variable.const else None
            for launch in subject.launches:
                if count is not None and launch.threads != 32 * count:
                    yield subject.hit(
                        code,
                        i,
                        f"execution_simdgroups<{text}> is {32 * count} threads, and {launch.name!r} has "
                        f"{launch.threads} in a threadgroup: the operation needs exactly its simdgroups",
                    )
                    break


def _remainders(subject: Subject) -> Iterator[Hit]:
    body = subject.body
    for node in body.nodes:
        if node.kind != "binary" or node.text != "/":
            continue
        extent, lanes = _extent(subject, node.parts[0]), body.constant(node.parts[1])
        if extent is None or lanes not in (2, 3, 4) or not _reads_vectors(subject, lanes):
            continue
        if not _bounds_loop(subject, node) or _has_tail(subject, node, lanes):
            continue
        name, dimension = extent
        for launch in subject.launches:
            size = launch.extent(name, dimension)
            if size is not None and size % lanes:
                yield subject.hit(
                    body,
                    node.at,
                    f"the loop takes {lanes} elements of {name!r} at a time, and {launch.name!r} has "
                    f"{size}: the last "
                    f"{size % lanes} are left out",
                )
                break


def _extent(subject: Subject, node: Node) -> tuple[str, int] | None:
    """Return the input and dimension whose extent a value is."""
    node = node.uncast()
    if node.kind == "call" and node.text == "get_extent" and len(node.parts) == 2:
        dimension = subject.body.constant(node.parts[1])
        name = node.parts[0].root
        known = dimension is not None and subject.is_parameter(name, node.at)
        return (name, dimension) if known and dimension is not None else None
    variable = subject.body.variable(node.text, node.at) if node.kind == "name" else None
    if variable is None or variable.value is None or subject.body.assignments(variable.name):
        return None
    return _extent(subject, variable.value)


def _reads_vectors(subject: Subject, lanes: int) -> bool:
    return any(v.kind == "pointer" and v.type_word.endswith(str(lanes)) for v in subject.body.variables)


def _bounds_loop(subject: Subject, division: Node) -> bool:
    """Whether a value is what a loop's variable is compared with, itself or by its name."""
    names = {v.name for v in subject.body.variables if v.value is not None and v.value.uncast() is division}
    for loop in subject.body.statements:
        test = loop.expressions[1] if loop.kind == "for" and len(loop.expressions) == 3 else None
        if test is not None and test.kind == "binary" and test.text in ("<", "<=", "!="):
            end = test.parts[1].uncast()
            if end is division or (end.kind == "name" and end.text in names):
                return True
    return False


def _has_tail(subject: Subject, division: Node, lanes: int) -> bool:
    """Whether the rest seems to be taken care of somewhere: n % 4, n & 3, n / 4 * 4, n & ~3."""
    body = subject.body
    for node in body.nodes:
        if node.kind != "binary":
            continue
        by = [body.constant(part) for part in node.parts]
        complement = any(part.kind == "unary" and part.text == "~" for part in node.parts)
        if (node.text == "%" and by[1] == lanes) or (node.text == "&" and (lanes - 1 in by or complement)):
            return True
        if node.text == "*" and lanes in by:
            other = node.parts[0] if by[1] == lanes else node.parts[1]
            known = {v.name for v in body.variables if v.value is not None and v.value.uncast() is division}
            if other.uncast().kind == "binary" or other.uncast().text in known:
                return True
    return False


def _parameters(subject: Subject) -> Iterator[Hit]:
    counts = (len(subject.inputs), len(subject.results), len(subject.attributes))
    if sum(counts) > PARAMETER_LIMIT:
        inputs, results, metal = counts
        yield subject.launch_hit(
            f"a kernel has at most {PARAMETER_LIMIT} parameters, got {sum(counts)} ({inputs} inputs, "
            f"{results} results, "
            f"{metal} metal_params)"
        )


_TILED = '''
def matmul(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    return A @ B

kernel = MetalKernel(
    "matmul", ["A", "B"], ["C"], torch_defn=matmul,
    metal_params=[
        MetalParameter("gid", "uint2", "thread_position_in_grid"),
        MetalParameter("lid", "uint2", "thread_position_in_threadgroup"),
    ],
    src="""
    threadgroup float a[16][16], b[16][16];
    uint K = A.get_extent(0), M = A.get_extent(1), N = B.get_extent(0);
    float sum = 0.0f;
    for (uint first = 0; first < K; first += 16) {
        a[lid.y][lid.x] = gid.y < M && first + lid.x < K ? A[first + lid.x, gid.y] : 0.0f;
        b[lid.y][lid.x] = gid.x < N && first + lid.y < K ? B[gid.x, first + lid.y] : 0.0f;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint k = 0; k < 16; ++k) sum += a[lid.y][k] * b[k][lid.x];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (gid.x < N && gid.y < M) C[gid.x, gid.y] = sum;
    """,
)
kernel.cases = lambda: [{"inputs": [random((33, 19)), random((19, 50))], "threads_per_grid": GRID,
                         "threads_per_thread_group": (16, 16, 1), "result_shapes": [[33, 50]]}]
'''

_SCALED = '''
def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * 2

kernel = MetalKernel(
    "scaled", ["x"], ["out"], torch_defn=scaled,
    metal_params=[MetalParameter("gid", "uint", "thread_position_in_grid")],
    src="""
    out[gid] = x[gid] * 2;
    """,
)
kernel.cases = lambda: [{"inputs": [random((1000,))], "threads_per_grid": (1000, 1, 1),
                         "threads_per_thread_group": (THREADS, 1, 1), "result_shapes": [[1000]]}]
'''

_PRODUCT = '''
def matmul(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    return A @ B

kernel = MetalKernel(
    "matmul", ["A", "B"], ["C"], torch_defn=matmul,
    metal_params=[MetalParameter("group", "uint2", "threadgroup_position_in_grid")],
    src="""
    constexpr auto d = matmul2d_descriptor(64, 32, static_cast<int>(metal::dynamic_extent), false, false, false);
    matmul2d<d, execution_simdgroups<4>> op;
    auto a = A.slice(0, group.y * 64);
    auto b = B.slice(group.x * 32, 0);
    auto c = C.slice(group.x * 32, group.y * 64);
    op.run(a, b, c);
    """,
)
kernel.cases = lambda: [{"inputs": [random((64, 32), torch.float16), random((32, 32), torch.float16)],
                         "threads_per_grid": (THREADS, 1, 1), "threads_per_thread_group": (THREADS, 1, 1),
                         "result_shapes": [[64, 32]]}]
'''

_FOURS = '''
def row_sums(x: torch.Tensor) -> torch.Tensor:
    return x.sum(-1)

kernel = MetalKernel(
    "row_sums", ["x"], ["out"], torch_defn=row_sums,
    metal_params=[MetalParameter("row", "uint", "thread_position_in_grid")],
    src="""
    device const packed_float4* fours = reinterpret_cast<device const packed_float4*>(&x[0, row]);
    uint width = x.get_extent(0);
    float4 sums = 0.0f;
    for (uint i = 0; i < width / 4; ++i) sums += float4(fours[i]);
    float sum = sums.x + sums.y + sums.z + sums.w;TAIL
    out[row] = sum;
    """,
)
kernel.cases = lambda: [{"inputs": [random((8, 50))], "threads_per_grid": (8, 1, 1),
                         "threads_per_thread_group": (32, 1, 1), "result_shapes": [[8]]}]
'''

_MANY = '''
def many(INPUTS) -> torch.Tensor:
    return x0.clone()

kernel = TorchMetalKernel(
    "many", [f"x{i}" for i in range(COUNT)], ["out"], torch_defn=many,
    metal_params=[MetalParameter("gid", "uint", "thread_position_in_grid")],
    src="""
    out[gid] = x0[gid];
    """,
)
'''


def _many(count: int) -> str:
    names = [f"x{i}: torch.Tensor" for i in range(count)]
    listed = ",\n         ".join(", ".join(names[i : i + 6]) for i in range(0, count, 6))
    return _MANY.replace("INPUTS", listed).replace("COUNT", str(count))


RULES = (
    Rule(
        id="MW201",
        title="threadgroups of one thread",
        severity="warning",
        explanation=(
            "The hardware runs 32 threads of a threadgroup as one. With `threads_per_thread_group=(1, 1, "
            "1)`, as many "
            "first examples have it, one lane works and 31 are idle: the kernel is right and up to 32 "
            "times too slow."
        ),
        bad=_SCALED.replace("THREADS", "1"),
        good=_SCALED.replace("THREADS", "256"),
        fix="Use a multiple of 32, such as 256; the last threadgroup may be partial.",
        find=_one_thread,
    ),
    Rule(
        id="MW202",
        title="a grid that leaves a tile partly filled",
        severity="error",
        explanation=(
            "`threads_per_grid` counts threads, so the last threadgroup along an axis is partial where the "
            "size is not "
            "a multiple of the threadgroup's. If each thread fills one element of a tile and all elements "
            "are read, the "
            "threads that do not exist leave theirs unwritten."
        ),
        bad=_TILED.replace("GRID", "(50, 33, 1)"),
        good=_TILED.replace("GRID", "(64, 48, 1)"),
        fix="Round the grid up to whole threadgroups, and guard the writes of the result.",
        find=_partial_tiles,
    ),
    Rule(
        id="MW203",
        title="a threadgroup that is not the operation's simdgroups",
        severity="error",
        explanation=(
            "`execution_simdgroups<N>` makes N simdgroups work on one tensor operation together: the "
            "threadgroup must "
            "have exactly 32 * N threads."
        ),
        bad=_PRODUCT.replace("THREADS", "256"),
        good=_PRODUCT.replace("THREADS", "128"),
        fix="Launch threadgroups of 32 * N threads, (128, 1, 1) for `execution_simdgroups<4>`, or change N.",
        find=_simdgroups,
    ),
    Rule(
        id="MW204",
        title="vectors that do not tile the row",
        severity="error",
        explanation=(
            "A loop over `width / 4` vectors leaves the last elements out where the width is not a "
            "multiple of four, and "
            "a case has such a width."
        ),
        bad=_FOURS.replace("TAIL", ""),
        good=_FOURS.replace(
            "TAIL", "\n    for (uint i = width - width % 4; i < width; ++i) sum += x[i, row];"
        ),
        fix="Take the rest element by element, or pad the rows.",
        find=_remainders,
    ),
    Rule(
        id="MW205",
        title="more than 31 parameters",
        severity="error",
        explanation=(
            "Inputs, results and Metal parameters together may be 31. `MetalKernel` refuses more when it "
            "is defined; a "
            "plain `TorchMetalKernel` only when it is converted."
        ),
        bad=_many(30),
        good=_many(29),
        fix="Pack small inputs into one tensor, or split the kernel.",
        find=_parameters,
    ),
)
