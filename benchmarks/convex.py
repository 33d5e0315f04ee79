"""The flattest network over all widths: ours against CVXPY + Clarabel on the same patterns.

    python benchmarks/convex.py              small sizes against the peer, then ours alone
    python benchmarks/convex.py --largest    up to 33 328 patterns (n = 20, d = 6), minutes

Expected: the same least trace to 1e-6, a proven gap ≤ 1e-8 at every size, and no more time than the
general solver. The last column says at which size the proof stops: where the patterns are too many.
"""

import argparse
import importlib.util
import os
import time

for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

import numpy as np  # noqa: E402

import flattest as ft  # noqa: E402
from flattest.flatness.convex.cells import MOST_CELLS, arrangement, most_cells  # noqa: E402

AGAINST = ((2, 6), (3, 7), (3, 10), (4, 8))
ALONE = ((2, 40), (3, 20), (4, 10), (4, 14), (5, 14))
LARGEST = ((6, 20),)
BEYOND = ((8, 24), (30, 100))


def problem(d: int, n: int) -> ft.Dataset:
    rng = np.random.default_rng(0)
    return ft.Dataset(rng.normal(size=(n, d)), rng.normal(size=n))


def general_solver(data: ft.Dataset) -> float:
    """The cone program over all patterns as one would write it in CVXPY."""
    import cvxpy

    X, cost, fit, inside = data.x, 0.0, 0.0, []
    for cell in arrangement(X).cells:
        on, sides = cell.astype(float), np.where(cell, 1.0, -1.0)
        for sign in (1.0, -1.0):
            u = cvxpy.Variable(data.d)
            h = (on[:, None] * X) @ u
            cost += np.sqrt(on @ (X**2).sum(axis=1)) * cvxpy.norm2(h)
            fit += sign * h
            inside.append((sides[:, None] * X) @ u >= 0)
    asked = cvxpy.Problem(cvxpy.Minimize(4 / data.n * cost), [fit == data.y, *inside])
    return float(asked.solve(solver=cvxpy.CLARABEL))


def seconds_of(function, *arguments):
    """CPU seconds of one call, which other work on the machine does not change, and its answer."""
    start = time.process_time()
    answer = function(*arguments)
    return time.process_time() - start, answer


def compare() -> bool:
    """One row per size; whether values agree and we take no more time."""
    if importlib.util.find_spec("cvxpy") is None:
        print("CVXPY is not installed and left out: install the extra 'flattest[cvxpy]'.")
        return True
    ft.flattest_network(ft.MLP(1), problem(2, 3))  # imports, once
    general_solver(problem(2, 3))
    reached = True
    for d, n in AGAINST:
        data = problem(d, n)
        ours, found = seconds_of(ft.flattest_network, ft.MLP(1), data)
        theirs, value = seconds_of(general_solver, data)
        good = abs(value / found.least - 1) <= 1e-6 and found.gap <= 1e-8 and ours <= theirs
        reached &= good
        print(
            f"n = {n:3}, d = {d}: {found.cells:6,} patterns, ours {ours:.2f} s (gap "
            f"{found.gap:.0e}), CVXPY {theirs:.2f} s (differs by {value / found.least - 1:.0e}): "
            f"{theirs / ours:.1f}×{'' if good else '  NOT REACHED'}",
            flush=True,
        )
    return reached


def alone(sizes) -> bool:
    reached = True
    for d, n in sizes:
        spent, found = seconds_of(ft.flattest_network, ft.MLP(1), problem(d, n))
        good = found.gap <= 1e-8
        reached &= good
        print(
            f"n = {n:3}, d = {d}: {found.cells:6,} patterns, {spent:7.2f} s, gap {found.gap:.0e}"
            f"{'' if good else '  NOT REACHED'}",
            flush=True,
        )
    for d, n in BEYOND:
        print(f"n = {n:3}, d = {d}: {most_cells(n, d):.2g} patterns, more than {MOST_CELLS:,}")
    return reached


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--largest", action="store_true", help="also n = 20, d = 6")
    asked = parser.parse_args()
    sizes = (*ALONE, *LARGEST) if asked.largest else ALONE
    raise SystemExit(not all([compare(), alone(sizes)]))
