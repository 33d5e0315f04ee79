"""Flattest interpolators: ours against CVXPY + Clarabel (and HiGHS at p = 1), side by side.

    python benchmarks/interpolators.py                n = 200, m = 400 against the peers, then
                                                      ours at n = 2000, m = 4000, and its growth
    python benchmarks/interpolators.py --largest 500  the second part up to n = 500, m = 1000

Expected: at least 20 times faster than Clarabel at p = 4/3, at least 5 times at p = 1, at an equal
or better gap. At n = 2000 a gap ≤ 1e-9 and a residual ≤ 1e-10 for every p and features, as they are
and with condition number 1e6, or an honest "ill-conditioned"; growth no worse than m n².
"""

import argparse
import importlib.util
import os
import time
import warnings
from collections.abc import Callable

# One thread for everybody: at this size BLAS threads cost more than they give.
for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

import numpy as np  # noqa: E402

from flattest.flatness.interpolators import Interpolator, dual_bound, flattest_interpolator  # noqa: E402

EXPECTED_RATIO = {1.0: 5, 4 / 3: 20}
EXPONENTS = (1.0, 1.05, 4 / 3, 1.5, 2.0)


def problem(kind: str, n: int, m: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Φ for x ~ N(0, I_{n/2}) and random unit weights, labels N(0, 1)."""
    rng = np.random.default_rng(seed)
    y = rng.standard_normal(n)
    if kind == "gaussian":
        return rng.standard_normal((n, m)), y
    d = n // 2
    w = rng.standard_normal((m, d))
    h = rng.standard_normal((n, d)) @ (w / np.linalg.norm(w, axis=1, keepdims=True)).T
    return {"relu": np.maximum(h, 0), "quadratic": h**2}[kind], y


def clarabel(phi, y, p):
    """(value, gap) by CVXPY with Clarabel on the program as one would write it."""
    import cvxpy

    a = cvxpy.Variable(phi.shape[1])
    matched = phi @ a == y
    cost = cvxpy.norm1(a) if p == 1 else cvxpy.sum(cvxpy.power(cvxpy.abs(a), p))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of inaccuracy: the gap is measured below
        cvxpy.Problem(cvxpy.Minimize(cost), [matched]).solve(solver=cvxpy.CLARABEL)
    value = float(np.sum(np.abs(a.value) ** p))
    return value, abs(value / dual_bound(phi, y, p, -matched.dual_value) - 1)


def highs(phi, y, p):
    """(value, gap) by SciPy's HiGHS."""
    from scipy.optimize import linprog

    m = phi.shape[1]
    found = linprog(np.ones(2 * m), A_eq=np.hstack([phi, -phi]), b_eq=y, method="highs")
    return found.fun, abs(found.fun / dual_bound(phi, y, p, found.eqlin.marginals) - 1)


def ours(phi, y, p):
    found = flattest_interpolator(phi, y, p)
    return found.value, abs(found.gap)


def median_seconds(solve: Callable, *problem, repeats: int) -> tuple[float, float]:
    """The median CPU time of a solve and the gap it reached; a first call warms up.

    CPU time of the one thread, which other work on the machine does not change.
    """
    _, gap = solve(*problem)
    times = []
    for _ in range(repeats):
        start = time.process_time()
        solve(*problem)
        times.append(time.process_time() - start)
    return float(np.median(times)), gap


def compare(n: int = 200, m: int = 400, repeats: int = 5) -> bool:
    """Prints one row per features × p; whether every expected ratio and accuracy was reached."""
    installed = importlib.util.find_spec("cvxpy") is not None
    if not installed:
        print("CVXPY is not installed and left out: install the extra 'flattest[cvxpy]'.")
    print(f"n = {n}, m = {m}; CPU seconds (gap)")
    reached = True
    for kind in ("gaussian", "relu", "quadratic"):
        phi, y = problem(kind, n, m)
        for p, least in EXPECTED_RATIO.items():
            seconds, gap = median_seconds(ours, phi, y, p, repeats=repeats)
            row = f"{kind:9} p = {p:.4g}: ours {seconds:.4f} ({gap:.0e})"
            if p == 1:
                peer, peer_gap = median_seconds(highs, phi, y, p, repeats=repeats)
                row += f", HiGHS {peer:.4f} ({peer_gap:.0e})"
            good = gap <= 1e-9
            if installed:
                peer, peer_gap = median_seconds(clarabel, phi, y, p, repeats=repeats)
                ratio = peer / seconds
                row += f", Clarabel {peer:.4f} ({peer_gap:.0e}): {ratio:.0f}× (expected {least}×)"
                good = ratio >= least and gap <= max(peer_gap, 1e-9)
            reached &= good
            print(row, "" if good else "  NOT REACHED")
    return reached


def conditioned(phi: np.ndarray, condition: float) -> np.ndarray:
    """Φ with singular values log-spaced from 1 to 1/condition in place of its own."""
    values, U = np.linalg.eigh(phi @ phi.T)
    scales = np.geomspace(1 / condition, 1, len(phi)) / np.sqrt(values)
    return (U * scales) @ (U.T @ phi)


def condition_number(phi: np.ndarray) -> float:
    """From the eigenvalues of ΦΦᵀ: to some digits as long as it is well under 1e8."""
    values = np.linalg.eigvalsh(phi @ phi.T)
    return float(np.sqrt(values[-1] / values[0]))


def certify(largest: int) -> bool:
    """Prints gap, residual and seconds at n = `largest`, m = 2n; whether all is certified.

    At condition number 1e6 "ill-conditioned" will do where the certificate fails.
    """
    reached = True
    for kind in ("gaussian", "relu", "quadratic"):
        phi, y = problem(kind, largest, 2 * largest)
        for features, allowed in ((phi, ""), (conditioned(phi, 1e6), "ill-conditioned")):
            size = condition_number(features)
            for p in EXPONENTS:
                found, seconds = solved(features, y, p)
                gap, residual = abs(found.gap), found.residual
                certified = gap <= 1e-9 and residual <= 1e-10
                good = found.status == ("optimal" if certified else allowed)
                reached &= good
                print(
                    f"{kind:9} condition {size:.0e} p = {p:<5.4g} n = {largest}: {seconds:6.2f} s, "
                    f"gap {gap:.0e}, residual {residual:.0e}, {found.iterations} iterations, "
                    f"{found.status}{'' if good else '  NOT REACHED'}",
                    flush=True,
                )
    return reached


def solved(phi, y, p) -> tuple[Interpolator, float]:
    """The interpolator and the CPU seconds it took."""
    start = time.process_time()
    found = flattest_interpolator(phi, y, p)
    return found, time.process_time() - start


def growth(largest: int, kind: str = "relu") -> bool:
    """Prints our seconds for m = 2n; whether they grow no faster than m n², which is n^3."""
    sizes = [largest // 4, largest // 2, largest]
    slow = False
    for p in EXPONENTS:
        seconds = [solved(*problem(kind, n, 2 * n), p)[1] for n in sizes]
        exponent = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
        times = ", ".join(f"{t:.2f}" for t in seconds)
        print(f"{kind} p = {p:<5.4g} n = {sizes}: {times} s, n^{exponent:.2f}", flush=True)
        slow |= exponent > 3.1
    return not slow


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--largest", type=int, default=2000, help="n of our own solves; m = 2n")
    largest = parser.parse_args().largest
    parts = [compare(), certify(largest), growth(largest)]
    raise SystemExit(not all(parts))
