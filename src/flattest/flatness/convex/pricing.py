"""Where is a dual too steep? Local search finds where, branch and bound proves where not.

For a dual λ and a sign s, the steepness of a neuron v is s λ·h/(ρ ‖h‖), h = σ(R v), ρ² = Σ σ′² ℓ².
Where it is at most η over all v and both signs, λ·t/η is a lower bound (`certificate`). No cell is
enumerated.

*Branch and bound.* A node has decided on which side of 0 some rows are: A v are their outputs that
are not always 0, a the dual on these, ρ_A² = Σ σ′² ℓ² over them; W v ≥ 0 says on which side they
are. A row i that is not decided has z_i = r_i·v and the output σ(z_i). For any μ ≥ 0, any numbers
β_i and any q with Aᵀq = Aᵀa + Wᵀμ − Σ β_i r_i,
  a·Av ≤ a·Av + μ·Wv = q·Av + Σ β_i z_i ≤ ‖q‖ ‖Av‖ + Σ β_i z_i.
With s_i = σ′ on the side where row i is, λ_i σ(z_i) + β_i z_i = (s_i λ_i + β_i) z_i ≤ x_i |σ(z_i)|,
x_i = [±(s_i λ_i + β_i)]₊/|s_i|, + above 0 and − below (where s_i = 0, β_i must be such that the
bracket is 0: for ReLU β_i ≥ 0). By Cauchy and Schwarz, with c = ‖q‖,
  (steepness)² ≤ (c² + Σ_i x_i²)/(ρ_A² + Σ_i s_i² ℓ_i²),
the largest of which over the sides is found exactly. Above a goal τ row i raises nothing as long as
x_i ≤ τ |s_i| ℓ_i on both sides, which are bounds on β_i (for ReLU 0 ≤ β_i ≤ τ ℓ_i − λ_i): rows for
which there is such a β_i need no decision, and the shortest q over all μ and β in their bounds is a
problem of bounded least squares. The others have β_i = 0. A node is divided on the row that raises
it most, or, where none does, on one that is above 0 at the node's own best neuron; where there is
none (ReLU), that neuron has the node's bound itself. Nodes without interior are no cells (Gordan's
theorem, to 1e-12), and dropped.

*Rounding.* Whatever q, μ and β are, with e = Aᵀq − Aᵀa − Wᵀμ + Σ β_i r_i, −e·v is added, and
|e·v| ≤ ‖e‖ K ‖h‖ is paid for, where ‖v‖ ≤ K ‖h‖ for all v. Such a K is there exactly where no
half-space is free of rows: with β ≥ 0, Rᵀβ = ±e_j (linear programs), ±v_j = β·Rv ≤ ‖β‖ ‖σ(Rv)‖.
Elsewhere v may be taken from the hull of its cell's rays with h ≠ 0 (the others change nothing),
and K = 10⁶ says that none of these has outputs below 10⁻⁶ ‖v‖: the one thing here that is assumed
of the data and not computed.
"""

import heapq
from itertools import count, islice
from typing import NamedTuple

import numpy as np

from flattest.flatness.convex.certificate import SIGNS
from flattest.flatness.convex.rows import Rows
from flattest.machine import later

optimize = later("scipy.optimize")
compiled = later("flattest.flatness.convex.nodes")
ASSUMED = 1e6
ROUNDS = 30


class Neuron(NamedTuple):
    """A point v of a closed cell (True where rows are above 0), with the sign of its neurons."""

    v: np.ndarray
    cell: np.ndarray
    sign: float
    steepness: float


class Proof(NamedTuple):
    """λ is nowhere steeper than `largest`; `nodes` were looked at, and where some neuron was found
    to be steeper than asked for, it is in `found`."""

    largest: float
    nodes: int
    found: list[Neuron]


def reach(rows: Rows) -> float:
    """K with ‖v‖ ≤ K ‖σ(R v)‖ for all v; 10⁶ where a half-space is free of rows."""
    least = min(map(abs, rows.slopes))
    if least > 0:
        return 1 / least
    k, D = rows.R.shape
    sizes = np.zeros(D)
    for j in range(D):
        for side in SIGNS:
            wanted = side * np.eye(D)[j]
            found = optimize.linprog(np.ones(k), A_eq=rows.R.T, b_eq=wanted)
            if found.x is None or np.abs(rows.R.T @ found.x - wanted).max() > 1e-8:
                return ASSUMED
            sizes[j] = max(sizes[j], float(np.linalg.norm(found.x)))
    return float(np.linalg.norm(sizes)) * (1 + 1e-6)


def prove(
    rows: Rows, dual: np.ndarray, goal: float, nodes: int, K: float, finds: int = 20
) -> Proof:
    """A bound on the steepness of λ: nodes above the goal are divided, the steepest first, until
    there are none, or so many were looked at, or so many neurons above it were found."""
    found: list[Neuron] = []
    heap: list[tuple[float, int, float, np.ndarray, int]] = []
    order, largest, looked = count(), 0.0, 0
    for sign in SIGNS:
        root = np.zeros((1, len(dual)), np.int8)
        bound, row, _ = _look(rows, sign * dual, root, K, goal)
        heapq.heappush(heap, (-bound[0], next(order), sign, root[0], int(row[0])))
    while heap and looked < nodes and len(found) < finds:
        bound, _, sign, sides, row = heapq.heappop(heap)
        if -bound <= goal:
            return Proof(max(largest, -bound), looked, found)
        if row == compiled.NONE:
            v, steep = steepest_in(rows, sign * dual, sides > 0)
            undecided = np.flatnonzero(sides == 0)
            steeper = steep > goal and is_open(rows, np.where(sides > 0, 1, -1))
            if steeper or not len(undecided):
                largest = max(largest, -bound)
                found += [Neuron(v, sides > 0, sign, steep)] if steeper else []
                continue
            # No open cell has all the undecided rows below 0 (two opposite inputs, say), or the
            # rounding of the node's own neuron hides on which side of 0 it has some row.
            row = int(undecided[0])
        children = np.array([sides, sides])
        children[:, row] = (1, -1)
        looked += len(children)
        for child, above, to_divide, inner in zip(
            children, *_look(rows, sign * dual, children, K, goal), strict=True
        ):
            if above <= goal:
                largest = max(largest, above)
            elif inner:
                heapq.heappush(heap, (-above, next(order), sign, child, int(to_divide)))
    return Proof(max([largest, *(-node[0] for node in heap)]), looked, found)


def _look(rows: Rows, dual: np.ndarray, sides: np.ndarray, K: float, goal: float):
    R = np.ascontiguousarray(rows.R)  # Numba compiles anew for another layout
    return compiled.look(R, rows.lengths, rows.slopes, dual, sides, K, goal)


def is_open(rows: Rows, sides: np.ndarray) -> bool:
    """Whether some v has all decided rows strictly on their sides."""
    return bool(compiled.has_interior(np.ascontiguousarray(rows.R), sides.astype(np.int8)))


def steepest_in(rows: Rows, dual: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, float]:
    """The neuron of a closed cell on which λ is steepest, and how steep it is there."""
    v = _projected(rows, dual, cell)[0]
    slopes = np.where(cell, rows.slopes[1], rows.slopes[0])
    h, rho = slopes * (rows.R @ v), np.sqrt(slopes**2 @ rows.lengths**2)
    size = rho * np.linalg.norm(h)
    return v, float(dual @ h / size) if size > 0 else -np.inf


def face_of(rows: Rows, dual: np.ndarray, cell: np.ndarray) -> np.ndarray:
    """Orthonormal columns that span the face of the cell's outputs that λ projects to."""
    v, walls = _projected(rows, dual, cell)
    slopes = np.where(cell, rows.slopes[1], rows.slopes[0])
    Q, triangle = np.linalg.qr(slopes[:, None] * rows.R @ _orthogonal(walls))
    sizes = np.abs(np.diag(triangle))
    return Q[:, sizes > 1e-12 * sizes.max(initial=0)]


def local_search(
    rows: Rows, dual: np.ndarray, starts: np.ndarray, tops: int, least: float
) -> list[Neuron]:
    """Neurons steeper than `least`, at most so many of each sign, no two of one cell: from the
    starts least squares on the active rows, then from cell to neighbouring cell."""
    found = []
    for sign in SIGNS:
        v = _ascended(rows, sign * dual, starts)
        order = np.argsort(-_steepness(rows, sign * dual, v), kind="stable")
        cells: dict[bytes, np.ndarray] = {}
        for i in order:
            cells.setdefault((v[i] @ rows.R.T > 0).tobytes(), v[i] @ rows.R.T > 0)
        # At kinks the signs of v may be those of no open cell.
        seen = (cell for cell in cells.values() if is_open(rows, np.where(cell, 1, -1)))
        best = {}
        for cell in islice(seen, tops):
            neuron = _climbed(rows, sign, dual, cell)
            best[neuron.cell.tobytes()] = neuron
        found += [n for n in best.values() if n.steepness > least]
    return found


def _steepness(rows: Rows, dual: np.ndarray, v: np.ndarray) -> np.ndarray:
    h = rows.outputs(v)
    sizes = rows.weights(v) * np.linalg.norm(h, axis=1)
    return np.where(sizes > 0, h @ dual / np.maximum(sizes, 1e-300), -np.inf)


def _ascended(rows: Rows, dual: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Each v moved to the least-squares neuron of its own pattern as long as it gets steeper."""
    value, ridge = _steepness(rows, dual, v), 1e-9 * np.eye(rows.R.shape[1])
    for _ in range(ROUNDS):
        slopes = np.where(v @ rows.R.T > 0, rows.slopes[1], rows.slopes[0])
        gram = np.einsum("mi,ij,il->mjl", slopes**2, rows.R, rows.R) + ridge
        new = np.linalg.solve(gram, ((slopes * dual) @ rows.R)[..., None])[..., 0]
        risen = _steepness(rows, dual, new)
        better = risen > value + 1e-12
        if not better.any():
            break
        v, value = np.where(better[:, None], new, v), np.where(better, risen, value)
    return v


def _climbed(rows: Rows, sign: float, dual: np.ndarray, cell: np.ndarray) -> Neuron:
    """From cell to neighbouring cell, across walls that the steepest neuron lies on."""
    v, value = steepest_in(rows, sign * dual, cell)
    for _ in range(ROUNDS):
        products = rows.R @ v
        walls = np.flatnonzero(np.abs(products) <= 1e-9 * np.abs(products).max(initial=1e-300))
        step = None
        for h in walls:
            other = cell.copy()
            other[h] = not other[h]
            point, risen = steepest_in(rows, sign * dual, other)
            if risen > value + 1e-12 and is_open(rows, np.where(other, 1, -1)):
                step, value = (other, point), risen
        if step is None:
            break
        cell, v = step
    return Neuron(v, cell, sign, value)


def _projected(rows: Rows, dual: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """v in the closed cell with σ(R v) nearest to λ, and the walls that hold it there: found by
    least squares once more on these walls, exactly."""
    slopes = np.where(cell, rows.slopes[1], rows.slopes[0])
    W, free = np.where(cell, 1.0, -1.0)[:, None] * rows.R, np.zeros(rows.R.shape[1])
    A, none = slopes[:, None] * rows.R, np.full(len(W), np.inf)
    v, mu, _, _ = compiled.nearest(A, dual, W, none, free, free)
    face = _orthogonal(W[mu > 0])
    polished = face @ np.linalg.lstsq(A @ face, dual)[0] if face.size else free
    inside = (W @ polished).min() >= -1e-9
    return (polished if inside else v), W[mu > 0]


def _orthogonal(W: np.ndarray) -> np.ndarray:
    """Orthonormal columns that span what is orthogonal to the rows of W."""
    if not len(W):
        return np.eye(W.shape[1])
    _, sizes, V = np.linalg.svd(W)
    return V[int(np.sum(sizes > 1e-10 * sizes[0])) :].T
