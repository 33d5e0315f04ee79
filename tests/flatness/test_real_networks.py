"""Every network of docs/networks.md, against a dense Hessian."""

from pathlib import Path

import numpy as np
import pytest

from support.modules import MARKS, assert_unharmed, one_thread, state  # noqa: F401
from support.real_networks import NETWORKS, Torch, case

pytestmark = [*MARKS, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
PAGE = Path(__file__).parents[2] / "docs" / "networks.md"
# What rounding the rescaled weights to the module's own type leaves of the outputs.
ROUNDING = {"float16": 1e-2, "bfloat16": 1e-1}


def printed() -> dict[str, list[str]]:
    """The rows of the page by network: parameters, trace, λ_max, least, how."""
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if "|" in line]
    return {name: rest for name, *rest in rows[2:]}


def test_the_page_has_a_row_for_each_of_at_least_sixty_networks():
    assert list(printed()) == list(NETWORKS)
    assert len(NETWORKS) >= 60


@pytest.mark.parametrize("name", NETWORKS)
def test_trace_top_eigenvalue_and_least_trace_are_right(name):
    network = case(name)
    before = state(network.module) if isinstance(network, Torch) else None
    found = network.measured()
    if before is not None:
        assert_unharmed(network.module, before)
    H = network.hessian()
    assert found.stderr == 0
    assert found.trace == pytest.approx(np.trace(H), rel=1e-8)
    assert found.top_eigenvalue == pytest.approx(np.linalg.eigvalsh(H)[-1], rel=1e-8)
    if found.least is not None:
        assert found.least <= found.trace * (1 + 1e-12)
        assert found.least - found.least_lower_bound <= 1e-8 * found.least
        tolerance = ROUNDING.get(name, 1e-5)
        assert np.allclose(network.outputs(found.rescaled), network.outputs(), atol=tolerance)
        if isinstance(network, Torch) and network.twin is None and name not in ROUNDING:
            reached = np.trace(network.hessian(found.rescaled))
            assert reached == pytest.approx(found.least, rel=1e-5)
    parameters, *numbers, _ = printed()[name]
    shown = [found.trace, found.top_eigenvalue, np.nan if found.least is None else found.least]
    assert int(parameters) == found.parameters
    expected = [float(n.replace("none", "nan")) for n in numbers]
    assert np.allclose(expected, shown, rtol=1e-3, equal_nan=True)
