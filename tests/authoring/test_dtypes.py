import ml_dtypes
import numpy as np
import pytest
import torch
from coreai.authoring import CustomMetalKernel

from metalwright.authoring import dtypes


def test_the_table_is_core_ais() -> None:
    assert {row.element: row.msl for row in dtypes.ELEMENT_TYPES} == CustomMetalKernel.metal_type_mappings


@pytest.mark.parametrize("row", dtypes.ELEMENT_TYPES, ids=lambda row: row.name)
def test_torch_and_numpy_agree(row: dtypes.ElementType) -> None:
    tensor = torch.ones(3, dtype=row.torch)
    assert tensor.element_size() == row.size == row.numpy.itemsize
    bytes_ = tensor.view(torch.uint8).numpy() if row.kind != "bool" else tensor.numpy()
    assert (bytes_.view(row.numpy) == np.ones(3, row.numpy)).all()


@pytest.mark.parametrize("row", dtypes.ELEMENT_TYPES, ids=lambda row: row.name)
def test_poison(row: dtypes.ElementType) -> None:
    filled = torch.full((row.size,), row.poison, dtype=torch.uint8)
    if row.kind == "float":
        assert filled.view(row.torch).isnan().all()
    elif row.kind == "int":
        assert set(filled.tolist()) == {0xA5}
    else:
        assert filled.view(torch.bool).item() is True


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, "bfloat", "bf16", "bfloat16", np.dtype(ml_dtypes.bfloat16)]
)
def test_find(dtype: object) -> None:
    row = dtypes.find(dtype)
    assert row is not None and row.element == "bf16"


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.complex64, np.dtype(np.float64), "double", object(), None]
)
def test_find_nothing(dtype: object) -> None:
    assert dtypes.find(dtype) is None
