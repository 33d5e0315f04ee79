"""Measuring a PyTorch module: `ft.torch.measure(module, data, loss)`. Needs `flattest[torch]`."""

from flattest.errors import FlattestError

try:
    import torch as _torch  # noqa: F401
except ImportError:
    raise FlattestError(
        "Measuring PyTorch modules needs PyTorch; install it with: pip install 'flattest[torch]'."
    ) from None

from flattest.flatness.measure_module import measure, top_eigenvalue, trace

__all__ = ["measure", "top_eigenvalue", "trace"]
