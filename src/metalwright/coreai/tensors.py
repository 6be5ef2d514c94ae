"""Arrays as tensors."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch


def tensor(array: np.ndarray) -> torch.Tensor:
    """Return an array as a tensor on its memory, or on a copy if it is read-only."""
    array = array if array.flags.writeable else array.copy()
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
