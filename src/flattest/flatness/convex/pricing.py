"""Where is a dual too steep? Local search finds where, branch and bound proves where not.

For a dual λ and a sign s, the steepness of a neuron v is s λ·h/(ρ ‖h‖), h = σ(R v), ρ² = Σ σ′² ℓ².
Where it is at most η over all v and both signs, λ·t/η is a lower bound (`certificate`). No cell is
enumerated.

*Branch and bound.* A node has decided on which side of 0 some rows are: A v are their outputs that
are not always 0, a the dual on these, ρ_A² = Σ σ′² ℓ² over them; W v ≥ 0 says on which side they
are. For any μ ≥ 0 and any q with Aᵀq = Aᵀa + Wᵀμ,
  a·Av ≤ a·Av + μ·Wv = q·Av ≤ ‖q‖ ‖Av‖,
and the shortest such q is the projection of a on {A v : W v ≥ 0}. A row that is not decided is
above 0, where its output h_i ≥ 0 has λ_i h_i ≤ [λ_i]₊ h_i, or below, with [−λ_i]₊ |h_i|. By Cauchy
and Schwarz, with c = ‖q‖,
  (steepness)² ≤ (c² + Σ_i x_i²)/(ρ_A² + Σ_i σ′_i² ℓ_i²), x_i = [±λ_i]₊ on the side where row i is,
the largest of which over the sides is found exactly. Rows with |λ_i| ≤ ℓ_i need no decision: they
raise nothing above 1. A node is divided on the row that raises it most, or, where none does, on one
that is above 0 at the node's own best neuron; where there is none (ReLU), that neuron has the
node's bound itself. Nodes without interior are no cells (Gordan's theorem, to 1e-12), and dropped.

*Rounding.* Whatever q and μ ≥ 0 are, with e = Aᵀq − Aᵀa − Wᵀμ, a·Av ≤ q·Av − e·v, and
|e·v| ≤ ‖e‖ K ‖h‖ is paid for, where ‖v‖ ≤ K ‖h‖ for all v. Such a K is there exactly where no
half-space is free of rows: with β ≥ 0, Rᵀβ = ±e_j (linear programs), ±v_j = β·Rv ≤ ‖β‖ ‖σ(Rv)‖.
Elsewhere v may be taken from the hull of its cell's rays with h ≠ 0 (the others change nothing),
and K = 10⁶ says that none of these has outputs below 10⁻⁶ ‖v‖: the one thing here that is assumed
of the data and not computed.
"""

import heapq
from contextlib import suppress
from itertools import count, islice
from typing import NamedTuple

import numpy as np

from flattest.flatness.convex.certificate import SIGNS
from flattest.flatness.convex.rows import Rows
from flattest.machine import later

optimize = later("scipy.optimize")
APPENDED = 1e-6
ASSUMED = 1e6
ABOVE = 1e-11
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
    heap: list[tuple[float, int, float, _Node]] = []
    order, largest, looked = count(), 0.0, 0
    for sign in SIGNS:
        root = _Node(rows, sign * dual, np.zeros(len(dual), np.int8), K, goal)
        heapq.heappush(heap, (-root.bound, next(order), sign, root))
    while heap and looked < nodes and len(found) < finds:
        bound, _, sign, node = heapq.heappop(heap)
        if -bound <= goal:
            return Proof(max(largest, -bound), looked, found)
        row = node.row_to_divide(rows)
        if row is None and not is_open(rows, np.where(node.sides > 0, 1, -1)):
            # No open cell has all the undecided rows below 0: two opposite inputs, say.
            row = int(np.flatnonzero(node.sides == 0)[0])
        if row is None:
            largest = max(largest, -bound)
            v, steep = steepest_in(rows, sign * dual, node.sides > 0)
            found += [Neuron(v, node.sides > 0, sign, steep)] if steep > goal else []
            continue
        for side in (1, -1):
            sides = node.sides.copy()
            sides[row] = side
            child = _Node(rows, sign * dual, sides, K, goal)
            looked += 1
            if child.bound <= goal:
                largest = max(largest, child.bound)
            elif is_open(rows, sides):
                heapq.heappush(heap, (-child.bound, next(order), sign, child))
    return Proof(max([largest, *(-node[0] for node in heap)]), looked, found)


def is_open(rows: Rows, sides: np.ndarray) -> bool:
    """Whether some v has all decided rows strictly on their sides: there is none exactly where
    y ≥ 0, Σ y = 1, has Wᵀy = 0 (Gordan), to 1e-12."""
    W = (sides[:, None] * rows.R)[sides != 0]
    W = W / np.linalg.norm(W, axis=1, keepdims=True)
    if len(W) < 2:
        return True
    system = np.vstack([W.T, np.ones(len(W))])
    try:
        y, miss = optimize.nnls(system, np.append(np.zeros(W.shape[1]), 1.0))
    except RuntimeError:
        return True
    return bool(miss > 1e-12)


def steepest_in(rows: Rows, dual: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, float]:
    """The neuron of a closed cell on which λ is steepest, and how steep it is there."""
    node = _Node(rows, dual, np.where(cell, 1, -1).astype(np.int8), ASSUMED, 0.0)
    slopes = np.where(cell, rows.slopes[1], rows.slopes[0])
    h, rho = slopes * (rows.R @ node.v), np.sqrt(slopes**2 @ rows.lengths**2)
    size = rho * np.linalg.norm(h)
    return node.v, float(dual @ h / size) if size > 0 else -np.inf


def face_of(rows: Rows, dual: np.ndarray, cell: np.ndarray) -> np.ndarray:
    """Orthonormal columns that span the face of the cell's outputs that λ projects to."""
    slopes = np.where(cell, rows.slopes[1], rows.slopes[0])
    A, W = slopes[:, None] * rows.R, np.where(cell, 1.0, -1.0)[:, None] * rows.R
    Q, triangle = np.linalg.qr(A @ _orthogonal(W[_nearest(A, dual, W)[1] > 0]))
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


class _Node:
    """Rows decided to be above 0 (1), below (−1) or not decided (0), and the bound that follows."""

    def __init__(self, rows: Rows, dual: np.ndarray, sides: np.ndarray, K: float, above: float):
        self.sides = sides
        decided = sides != 0
        slopes = np.where(sides > 0, rows.slopes[1], rows.slopes[0])
        live = decided & (slopes != 0)
        self.rho2 = float(slopes[live] ** 2 @ rows.lengths[live] ** 2)
        a = dual[live]
        positive = np.maximum(a * sides[live] * np.sign(slopes[live]), 0)
        self.v, self.open = np.zeros(rows.R.shape[1]), _added(rows, dual, decided)
        self.bound = self._tau(float(np.linalg.norm(positive)))
        if live.any() and self.bound > above:
            self._project(rows, a, slopes, live, decided, K)

    def _project(self, rows, a, slopes, live, decided, K) -> None:
        """v with A v nearest to a, and the bound that q = A v gives; ρ ≥ ρ_A, so that what rounding
        costs is at most ‖e‖ K/ρ_A."""
        A, W = slopes[live, None] * rows.R[live], self.sides[decided, None] * rows.R[decided]
        v, mu = _nearest(A, a, W)
        # Once more, exactly, on the walls that it lies on.
        face = _orthogonal(W[mu > 0])
        self.v = face @ np.linalg.lstsq(A @ face, a)[0] if face.size else np.zeros(len(v))
        q, self.v = A @ self.v, self.v if (W @ self.v).min() >= -1e-9 else v
        for near in (q, A @ v):
            missing = _missing(A, a, W, near)
            paid = K * missing / np.sqrt(self.rho2)
            self.bound = min(self.bound, self._tau(float(np.linalg.norm(near))) + paid)

    def _tau(self, c: float) -> float:
        """The largest (c² + Σ x²)/(ρ² + Σ w) over the sides of open rows, its root: each step takes
        the sides that are worst for the last (Dinkelbach), until none is worse."""
        x2, w = self.open
        at, tau2 = np.arange(x2.shape[1]), 0.0
        while True:
            worst = np.argmax(x2 - tau2 * w, axis=0)
            top, below = c**2 + x2[worst, at].sum(), self.rho2 + w[worst, at].sum()
            new = top / below if below > 0 else 0.0
            if new <= tau2 * (1 + 1e-15):
                return float(np.sqrt(tau2)) + x2.size * 1e-15
            tau2 = new

    def row_to_divide(self, rows: Rows) -> int | None:
        """The open row that adds most; else the one farthest above 0 (for leaky units, from 0) at
        the node's best neuron; None where there is none."""
        undecided = np.flatnonzero(self.sides == 0)
        if not len(undecided):
            return None
        x2, w = self.open
        added = (x2 - w).max(axis=0)
        if added.max() > 0:
            return int(undecided[np.argmax(added)])
        away = rows.R[undecided] @ self.v
        away = np.abs(away) if rows.slopes[0] else away
        if away.max() <= ABOVE * np.linalg.norm(self.v):
            return None
        return int(undecided[np.argmax(away / rows.lengths[undecided])])


def _orthogonal(W: np.ndarray) -> np.ndarray:
    """Orthonormal columns that span what is orthogonal to the rows of W."""
    if not len(W):
        return np.eye(W.shape[1])
    _, sizes, V = np.linalg.svd(W)
    return V[int(np.sum(sizes > 1e-10 * sizes[0])) :].T


def _nearest(A: np.ndarray, a: np.ndarray, W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """v with W v ≥ 0 and A v nearest to a, a shortest one nearly, and the walls' multipliers."""
    D = A.shape[1]
    T = np.asarray(np.linalg.qr(np.vstack([A, APPENDED * np.eye(D)]), mode="r"))
    start, M = np.linalg.solve(T.T, A.T @ a), np.linalg.solve(T.T, W.T)
    mu = np.zeros(len(W))
    with suppress(RuntimeError):
        mu = optimize.nnls(M, -start)[0]
    return np.linalg.solve(T, start + M @ mu), mu


def _missing(A: np.ndarray, a: np.ndarray, W: np.ndarray, q: np.ndarray) -> float:
    """‖e‖ with the best μ for this q."""
    with suppress(RuntimeError):
        return float(optimize.nnls(W.T, A.T @ (q - a))[1])
    return np.inf


def _added(rows: Rows, dual: np.ndarray, decided: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For the rows that are not decided, above 0 and below: x² and σ′²ℓ²."""
    free = ~decided
    above, below = rows.slopes[1], rows.slopes[0]
    x = [np.maximum(np.sign(s) * side * dual[free], 0) for s, side in ((above, 1), (below, -1))]
    w = [np.full(free.sum(), s**2) * rows.lengths[free] ** 2 for s in (above, below)]
    return np.array(x) ** 2, np.array(w)
