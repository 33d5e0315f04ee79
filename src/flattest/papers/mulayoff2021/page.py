"""What the page is sent of the runs, for page.js to draw."""

from typing import Any

import numpy as np

from flattest.report.views import Series, rounded, thinned
from flattest.stability.functions import UnivariateNetwork, second_derivative
from flattest.stability.weights import g

FUNCTIONS_AT_MOST = 60


def two_step_sizes(found: Series, points: int, digits: int) -> dict[str, Any]:
    curves = ("train_loss", "sharpness_trace")
    return {
        "lr": rounded(found["lr"]),
        "epoch": rounded(thinned(found["epoch"], points), 6),
        **{name: rounded(thinned(found[name], points).T) for name in curves},
        **_functions(found, range(len(found["theta"]))),
    }


def sweep(found: Series, points: int, digits: int) -> dict[str, Any]:
    names = ("lr", "sharpness", "flattest", "bound", "threshold", "variation")
    counted = np.flatnonzero(~np.isnan(found["sharpness"]))
    return {name: rounded(found[name]) for name in names} | _functions(
        found, thinned(counted, FUNCTIONS_AT_MOST)
    )


def _functions(found: Series, chosen: Any) -> dict[str, Any]:
    """The chosen functions, each by the points between which it is linear, with f″; the data; g."""
    x = np.linspace(found["x"].min(), found["x"].max(), 201)
    return {
        "x": rounded(found["x"]),
        "y": rounded(found["y"]),
        "grid": rounded(x),
        "g": rounded(g(x, found["x"])),
        "functions": [_function(found, int(run)) for run in chosen],
    }


def _function(found: Series, run: int) -> dict[str, Any]:
    network, x = UnivariateNetwork.from_theta(found["theta"][run]), found["x"]
    curvature = second_derivative(network)
    inside = (curvature.knots > x.min()) & (curvature.knots < x.max())
    knots, masses = curvature.knots[inside], curvature.masses[inside]
    corners = np.concatenate([[x.min() - 0.05], knots, [x.max() + 0.05]])
    # Five digits: the corners of a steep function lie close together.
    return {
        "run": run,
        "corners": rounded(corners, 5),
        "values": rounded(network(corners), 5),
        "knots": rounded(knots, 5),
        "masses": rounded(np.abs(masses)),
    }


VIEWS = {
    "mulayoff2021/two-step-sizes": two_step_sizes,
    "mulayoff2021/step-size-sweep": sweep,
}
