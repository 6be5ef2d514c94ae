"""A small convolutional network; what follows each convolution is one kernel."""

from __future__ import annotations

import torch

from metalwright import MetalKernel, MetalParameter
from tests.models.case import Case, seeded

CHANNELS = (3, 16, 32)
SIZE = 24
CLASSES = 10
BATCH = 2


def _bias_gelu_scale(x: torch.Tensor, bias: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    biased = x.float() + bias.float()[:, None, None]
    activated = torch.nn.functional.gelu(biased, approximate="tanh")
    return (activated * scale.float()[:, None, None]).to(x.dtype)


bias_gelu_scale = MetalKernel(
    "convnet_bias_gelu_scale",
    input_names=["x", "bias", "scale"],
    result_names=["out"],
    src="""
    uint channels = x.get_extent(2), channel = gid.z % channels, image = gid.z / channels;
    float v = float(x[gid.x, gid.y, channel, image]) + float(bias[channel]);
    float inner = 0.7978845608f * (v + 0.044715f * v * v * v);
    float activated = 0.5f * v * (1.0f + metal::precise::tanh(inner));
    out[gid.x, gid.y, channel, image] = TYPE(activated * float(scale[channel]));
    """,
    torch_defn=_bias_gelu_scale,
    template_dtypes={"x": "TYPE"},
    metal_params=[MetalParameter("gid", "uint3", "thread_position_in_grid")],
)


class Convolution(torch.nn.Module):
    def __init__(
        self, inputs: int, outputs: int, generator: torch.Generator, stride: int = 1, groups: int = 1
    ) -> None:
        super().__init__()
        self.stride, self.groups = stride, groups

        def parameter(value: torch.Tensor) -> torch.nn.Parameter:
            return torch.nn.Parameter(value, requires_grad=False)

        fan_in = 9 * inputs // groups
        self.weight = parameter(
            torch.randn(outputs, inputs // groups, 3, 3, generator=generator) * (2 / fan_in) ** 0.5
        )
        self.bias = parameter(0.2 * torch.randn(outputs, generator=generator))
        self.scale = parameter(1 + 0.2 * torch.randn(outputs, generator=generator))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.nn.functional.conv2d(x, self.weight, None, self.stride, 1, groups=self.groups)
        images, channels, height, width = x.shape
        return bias_gelu_scale(
            x, self.bias, self.scale,
            threads_per_grid=(width, height, images * channels), threads_per_thread_group=(8, 8, 1),
            result_shapes=[[images, channels, height, width]],
        )  # fmt: skip


class ConvNet(torch.nn.Module):
    """Images to the scores of classes: a stem, a depthwise-separable residual block, a strided end, a head."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        generator = seeded(seed)
        colours, narrow, wide = CHANNELS
        self.stem = Convolution(colours, narrow, generator)
        self.depthwise = Convolution(narrow, narrow, generator, groups=narrow)
        self.end = Convolution(narrow, wide, generator, stride=2)
        self.head = torch.nn.Parameter(
            torch.randn(CLASSES, wide, generator=generator) * wide**-0.5, requires_grad=False
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.stem(images)
        x = self.end(x + self.depthwise(x))
        return x.mean((2, 3)) @ self.head.T


def inputs(images: int, dtype: torch.dtype = torch.float32, seed: int = 5) -> dict[str, torch.Tensor]:
    return {"images": torch.randn(images, CHANNELS[0], SIZE, SIZE, generator=seeded(seed)).to(dtype)}


def case(*, dynamic: bool, dtype: torch.dtype = torch.float32) -> Case:
    """A fixed number of images, or any."""
    any_number = {0: torch.export.Dim("batch", min=1, max=64)}
    return Case(
        ConvNet(4).to(dtype),
        inputs(BATCH, dtype),
        outputs=("scores",),
        dynamic_shapes={"images": any_number} if dynamic else None,
    )
