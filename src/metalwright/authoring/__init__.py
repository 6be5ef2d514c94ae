"""Writing a kernel and executing it: the public names of this layer."""

import re
import warnings

import torch

# coreai-torch takes a CPU build of the very version that it was validated with ("2.13.0+cpu") for a later one
_VALIDATED = re.escape(torch.__version__.split("+")[0])
warnings.filterwarnings("ignore", message=rf"coreai-torch has only been validated with torch<={_VALIDATED};")

from coreai.authoring import MetalParameter  # noqa: E402

from metalwright.authoring import torch_emulate as _torch_emulate  # noqa: E402,F401  (registers emulate("torch"))
from metalwright.authoring.emulate import emulate  # noqa: E402
from metalwright.authoring.kernel import MetalKernel  # noqa: E402
from metalwright.authoring.mlx import emulate as _mlx_emulate  # noqa: E402,F401  (registers emulate("mlx"))
from metalwright.authoring.mlx.kernel import CustomKernel, metal_kernel  # noqa: E402
from metalwright.authoring.run import Execution, execute, launch  # noqa: E402
from metalwright.authoring.shader import ShaderKernel, ShaderLibrary, compile_shader  # noqa: E402
from metalwright.authoring.textures import Texture  # noqa: E402

__all__ = [
    "CustomKernel",
    "Execution",
    "MetalKernel",
    "MetalParameter",
    "ShaderKernel",
    "ShaderLibrary",
    "Texture",
    "compile_shader",
    "emulate",
    "execute",
    "launch",
    "metal_kernel",
]
