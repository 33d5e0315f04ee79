"""The flattest implementation (mulayoff2021, S82) at k = 80, n = 10: ours beside CVXPY + Clarabel.

    python benchmarks/stability.py

Expected: under 50 ms at a relative duality gap ≤ 1e-6, and the value of CVXPY to 1e-6. The inputs
spread over [−1, 1], where the top eigenvalue at the optimum is simple, up to [−8, 8], where it is
multiple and a density matrix has to certify it.
"""

import importlib.util
import os
import time
import warnings
from collections.abc import Callable

# One thread for everybody: at this size BLAS threads cost more than they give.
for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

import numpy as np  # noqa: E402

import flattest as ft  # noqa: E402
from flattest.problem.data import Dataset  # noqa: E402
from flattest.problem.losses import HalfMSE  # noqa: E402
from flattest.problem.models import MLP, predict  # noqa: E402
from flattest.rescaling.top_eigenvalue import orbit_pencil  # noqa: E402

K, N = 80, 10
EXPECTED_SECONDS = 0.05
EXPECTED_GAP = EXPECTED_AGREEMENT = 1e-6
MODEL = MLP(K, bias=True, output_bias=True)


def minimum(spread: float, seed: int = 0):
    """A random network, times 3, with the data it interpolates: n even inputs in ±spread."""
    params = {name: 3 * value for name, value in MODEL.init(1, seed).items()}
    params["b1"] = spread * params["b1"]
    x = np.linspace(-spread, spread, N)[:, None]
    return params, Dataset(x, predict(MODEL, params, x, x))


def ours(params, data) -> tuple[float, float]:
    """(value, relative duality gap)."""
    found = ft.flattest_rescaling(MODEL, params, data, "half_mse", measure="top_eigenvalue")
    return found.value, found.certificate.gap


def clarabel(params, data) -> float:
    """min τ over τI ⪰ F + Σ t_i U_i + D_i / t_i, each 1/t_i as a Schur complement."""
    import cvxpy

    pencil = orbit_pencil(MODEL, params, data, HalfMSE())
    alive = pencil.up.any((1, 2)) & pencil.down.any((1, 2))
    up, x = pencil.up[alive], data.x[:, 0]
    h = data.x @ params["W1"][alive].T + params["b1"][alive]
    inner = (h > 0) * params["W2"][alive] / np.sqrt(N)
    C = np.hstack([inner * x[:, None], inner])
    t, tau = cvxpy.Variable(len(up)), cvxpy.Variable()
    top = tau * np.eye(N) - pencil.fixed - sum(t[i] * up[i] for i in range(len(up)))
    block = cvxpy.bmat([[top, C], [C.T, cvxpy.diag(cvxpy.hstack([t, t]))]])
    program = cvxpy.Problem(cvxpy.Minimize(tau), [(block + block.T) / 2 >> 0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of inaccuracy: the value is compared below
        program.solve(solver="CLARABEL", tol_gap_rel=1e-9, tol_gap_abs=1e-9, tol_feas=1e-9)
    return float(program.value)


def seconds(run: Callable, *problem, repeats: int) -> float:
    """The median CPU time of the one thread, which other work on the machine does not change."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        run(*problem)
        times.append(time.process_time() - start)
    return float(np.median(times))


def main() -> bool:
    """Prints one row per spread; whether every expectation was reached."""
    installed = importlib.util.find_spec("cvxpy") is not None
    if not installed:
        print("CVXPY is not installed and left out: install the extra 'flattest[cvxpy]'.")
    print(f"flattest implementation, k = {K}, n = {N}; CPU milliseconds, relative duality gap")
    ours(*minimum(1.0))  # warms up
    reached = True
    for spread in (0.5, 1.0, 2.0, 4.0, 8.0):
        problem = minimum(spread)
        value, gap = ours(*problem)
        took = seconds(ours, *problem, repeats=11)
        row = f"inputs in ±{spread:<4g} ours {1e3 * took:6.1f} ({gap:.0e}), expected < 50"
        good = took < EXPECTED_SECONDS and 0 <= gap <= EXPECTED_GAP
        if installed:
            theirs = clarabel(*problem)
            peer = seconds(clarabel, *problem, repeats=1)
            off = value / theirs - 1
            row += f"; CVXPY {1e3 * peer:8.0f}, {peer / took:.0f} ×, ours/theirs − 1 = {off:.0e}"
            good &= abs(off) <= EXPECTED_AGREEMENT
        print(row, "" if good else "  NOT REACHED", flush=True)
        reached &= good
    return reached


if __name__ == "__main__":
    raise SystemExit(not main())
