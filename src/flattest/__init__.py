"""flattest: are the flattest minima the ones that generalize, and does the algorithm find them?"""

import jax

jax.config.update("jax_enable_x64", True)

from flattest.certificate import Certificate  # noqa: E402
from flattest.errors import FlattestError  # noqa: E402

__all__ = ["Certificate", "FlattestError"]
