"""Arrays of other libraries: torch tensors and arrays of the array-API standard."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["like", "on_host"]


def on_host(data: Any) -> Any:  # noqa: ANN401 - whatever came
    """Return another library's array as a numpy array, and other data unchanged."""
    if _is_tensor(data):
        tensor = data.detach().cpu()
        # numpy has no bfloat16; float32 holds its values exactly.
        is_brain = tensor.dtype == sys.modules["torch"].bfloat16
        return (tensor.float() if is_brain else tensor).numpy()
    if not _is_standard(data):
        return data
    try:
        return np.from_dlpack(data)
    except (BufferError, RuntimeError, TypeError):
        # Memory that another device, or a read-only array, does not lend.
        return np.asarray(data)


def like(found: NDArray[Any], data: Any) -> NDArray[Any]:  # noqa: ANN401 - anything
    """Return a numpy array in the library and on the device of the data given."""
    other: Any = found
    if _is_tensor(data):
        other = sys.modules["torch"].from_numpy(found).to(data.device)
    elif _is_standard(data):
        other = data.__array_namespace__().asarray(found, device=data.device)
    # Callers are told numpy's type, which is what they get for what numpy knows.
    return other  # type: ignore[no-any-return]


def _is_tensor(data: object) -> bool:
    """Return whether the data are a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(data, torch.Tensor)


def _is_standard(data: object) -> bool:
    """Return whether the data are an array of the standard, other than numpy's."""
    # numpy's own arrays and scalars name their namespace too.
    is_numpy = isinstance(data, np.ndarray | np.generic)
    return hasattr(data, "__array_namespace__") and not is_numpy
