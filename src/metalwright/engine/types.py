"""What goes into the engine and what comes out: plain data, shared with the layers above."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from metalwright.errors import Site


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel.

    ``kind`` is ``"tensor"``, ``"pointer"``, ``"reference"``, ``"threadgroup"``, ``"texture"`` or ``"attribute"``;
    ``index`` is the number in ``[[buffer(n)]]``, ``[[threadgroup(n)]]`` or ``[[texture(n)]]``, or -1; ``element`` is
    Core AI's name of the element type (``"f32"``, ``"si8"`` …; ``"struct"`` for anything else); ``lanes`` is the
    number of components of a vector element; ``rank`` is a tensor's; ``address_space`` is Metal's word; ``attribute``
    is a thread attribute's name; ``texture`` is the type of a texture (``"texture2d"`` …) and ``access`` its access
    (``"read"`` …); ``present`` is false for a buffer that this specialisation of the kernel does not have.
    """

    name: str
    kind: str
    index: int = -1
    element: str = ""
    element_bytes: int = 0
    lanes: int = 1
    rank: int = 0
    address_space: str = ""
    attribute: str = ""
    texture: str = ""
    access: str = ""
    present: bool = True


@dataclass(frozen=True)
class KernelSignature:
    """A kernel as the launcher sees it: its host name, its symbol in the module, and its parameters in order."""

    name: str
    symbol: str
    parameters: tuple[Parameter, ...]
    max_threads: int = 1024


@dataclass(frozen=True)
class ThreadgroupVariable:
    """A variable in threadgroup memory: its name and where it is declared."""

    name: str
    site: Site | None = None


@dataclass(frozen=True)
class Module:
    """A compiled program: LLVM IR whose kernels call the engine's intrinsics and nothing else outside.

    ``sources`` maps each of the user's files to its text, for excerpts under messages; ``threadgroup_variables`` are
    those in the program, by the id that the intrinsic is called with.
    ``compiled_lines`` holds the user's lines that were changed before they were compiled, by file and number: the
    columns in the IR are theirs. ``unset_constants`` are the function constants that still need a value.
    ``recursive_functions`` are those that call themselves, by the number that their faults have. ``watched`` asks that
    accesses to shared memory are observed, in a module that is ``checked``.
    """

    text: str
    kernels: tuple[KernelSignature, ...]
    checked: bool
    label: str
    sources: Mapping[str, str] = field(default_factory=dict)
    threadgroup_variables: tuple[ThreadgroupVariable, ...] = ()
    compiled_lines: Mapping[tuple[str, int], str] = field(default_factory=dict)
    unset_constants: tuple[str, ...] = ()
    recursive_functions: tuple[str, ...] = ()
    watched: bool = False

    def excerpt(self, site: Site | None) -> str | None:
        """Return the line of the user's MSL at a site."""
        if site is None:
            return None
        lines = self.sources.get(site.file, "").split("\n")
        return lines[site.line - 1] if 0 < site.line <= len(lines) else None

    def kernel(self, name: str) -> KernelSignature:
        """Return the kernel with this host name.

        Raises:
            KeyError: there is none; the message lists those that there are.
        """
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        known = ", ".join(kernel.name for kernel in self.kernels) or "none"
        raise KeyError(f"no kernel {name!r} in {self.label!r}; there are: {known}")


@dataclass(frozen=True)
class Build:
    """Machine code of one kernel for this processor, and the facts that a launch needs."""

    machine_code: bytes = field(repr=False)
    arena_bytes: int
    threadgroup_sizes: tuple[int, ...]
    threadgroup_offsets: tuple[int, ...]
    uses_fibers: bool
    private_variables: int
    sites: tuple[Site | None, ...]


@dataclass(frozen=True)
class Buffer:
    """A tensor or a pointer given to a launch.

    ``address`` is that of element 0, ``extents`` are in Metal's order (the contiguous dimension first),
    ``written`` is the address of ``nbytes`` bytes that are set to 1 where a thread writes (checked mode only).
    ``fresh`` tells a watched kernel that the elements hold nothing until a thread writes them.
    """

    name: str
    address: int
    element: str
    extents: tuple[int, ...]
    nbytes: int
    writable: bool
    written: int | None = None
    fresh: bool = False


@dataclass(frozen=True)
class Scalar:
    """A value given to a ``constant T&`` parameter: its bytes as the GPU would read them."""

    name: str
    data: bytes
    element: str


@dataclass(frozen=True)
class Texture:
    """Pixels given to a ``[[texture(n)]]`` parameter.

    ``address`` is that of the first pixel; they lie without gaps. ``size`` is the width, the height, and the depth or
    the number of layers; ``component`` is what each of a pixel's ``channels`` is: one of ``abi.PIXEL_COMPONENTS``.
    """

    name: str
    address: int
    size: tuple[int, int, int]
    channels: int
    component: str
    nbytes: int
    writable: bool


Argument = Buffer | Scalar | Texture


@dataclass(frozen=True)
class LogLine:
    """One line that a kernel wrote with ``os_log``, and the position in the grid of the thread that did."""

    level: str
    text: str
    thread: tuple[int, int, int]


@dataclass(frozen=True)
class Access:
    """A thread's access to memory: where in the MSL, and the line there; how (``"reads"``, ``"writes"`` …).

    ``thread`` is its position in the grid, ``value`` the bytes that a write left or a read found.
    """

    site: Site | None
    excerpt: str | None
    thread: tuple[int, int, int]
    how: str
    value: bytes


@dataclass(frozen=True)
class Race:
    """Two threads touch the same bytes, one of them writes, and nothing orders them.

    ``memory`` is the buffer's or the threadgroup variable's name, ``space`` ``"device"`` or ``"threadgroup"``,
    ``offset`` where in it, in bytes. ``count`` tells how often these two places met so. ``other_threadgroup``: the
    threads are of two threadgroups. ``barrier_between``: a barrier stood between, whose flags do not cover this memory.
    """

    memory: str
    space: str
    offset: int
    now: Access
    before: Access
    count: int
    other_threadgroup: bool
    barrier_between: bool


@dataclass(frozen=True)
class Uninitialised:
    """A thread reads what no thread has written: ``memory``, ``space``, ``offset`` and ``count`` as in a race."""

    memory: str
    space: str
    offset: int
    now: Access
    count: int


@dataclass(frozen=True)
class BadNumber:
    """Arithmetic that gives anything on a GPU.

    ``what`` says which, ``thread`` is the position in the grid of the first to do it, ``count`` how often it was done.
    """

    what: str
    site: Site | None
    excerpt: str | None
    thread: tuple[int, int, int]
    count: int


Seen = Race | Uninitialised | BadNumber


@dataclass(frozen=True)
class LaunchReport:
    """What a launch did besides writing its results; ``seen`` is what a watched kernel was seen to do."""

    threads: int
    workers: int
    seconds: float
    log: tuple[LogLine, ...] = ()
    seen: tuple[Seen, ...] = ()
