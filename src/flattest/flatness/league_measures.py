"""How each measure of the league is computed of a network, its `Subject`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flattest.curvature import spectrum as quadrature
from flattest.curvature.diagonal import MOST_COLUMNS, diagonal
from flattest.curvature.eigenvalues import DeadNetwork, top_eigenvalues as largest
from flattest.curvature.operator import ROWS_AT_ONCE, Operator
from flattest.curvature.result import Diagonal, Eigenpairs, Quantity
from flattest.curvature.spectrum import SpectralDensity
from flattest.errors import FlattestError, unknown
from flattest.flatness.ascent import rise
from flattest.flatness.assemble import least_trace as balanced_trace
from flattest.problem.data import standard_error
from flattest.problem.randomness import generator
from flattest.rescaling.balancing import Balance, Coupling, balance
from flattest.rescaling.units import FIXED, Unbounded, flattest, layerwise

# Beyond this many products the relative flatness of a layer is estimated.
_MOST_PRODUCTS = 4096
# A gradient is rounding error where it is this small against √Tr G: |f − y|, roughly.
_NO_GRADIENT = 1e-8


class NotDefined(Exception):
    """A measure has no meaning for this network; the message says why."""


@dataclass(frozen=True)
class LeagueSettings:
    """What the measures depend on beside the network.

    `rho`: radius of balls; `adaptive_rho`: in units of each weight; `m`: samples in a batch;
    `steps`: of ascent; `k`: eigenvalues; `increase`: of the loss that PAC-Bayes' noise may cause,
    on average over `draws`; `probes`: of the spectral density; `lr`: the step size η, where there
    is one; `layer`: the weight that feeds the outputs, where it cannot be found; `most_products`:
    with ∇²L, for a trace that is estimated, where ∇²L has more than `most_columns` columns (0: such
    a trace is left out); `eigen_products`: for eigenvalues, as many as they take unless it says
    how many.
    """

    rho: float = 0.05
    adaptive_rho: float = 0.5
    m: int = 8
    steps: int = 20
    k: int = 5
    increase: float = 0.1
    draws: int = 32
    probes: int = 8
    seed: int = 0
    lr: float | None = None
    layer: str | None = None
    rtol: float = 1e-2
    most_products: int = 4096
    most_columns: int = MOST_COLUMNS
    eigen_products: int | None = None
    tol: float = 1e-8

    def __post_init__(self) -> None:
        for name in ("rho", "adaptive_rho", "m", "steps", "k", "increase", "probes"):
            if not getattr(self, name) > 0:
                raise FlattestError(f"{name} must be positive, not {getattr(self, name)!r}.")
        if self.draws < 2:
            raise FlattestError(f"draws must be at least 2, not {self.draws}.")
        if self.lr is not None and not self.lr > 0:
            raise FlattestError(f"lr must be positive, not {self.lr!r}.")


@dataclass
class Subject:
    """A network that is measured: what several measures share is computed once."""

    op: Operator
    settings: LeagueSettings

    @cached_property
    def theta(self) -> np.ndarray:
        return self.op.point()

    @cached_property
    def diagonal(self) -> Diagonal:
        s = self.settings
        if s.most_products == 0 and not self.op.structure.exact:
            raise NotDefined("the diagonal of ∇²L takes products with it")
        return diagonal(self.op, s.rtol, s.most_products, s.seed, s.most_columns)

    @cached_property
    def top(self) -> Eigenpairs:
        s = self.settings
        try:
            return largest(self.op, min(s.k, self.op.size), s.tol, s.eigen_products)
        except DeadNetwork:
            zeros = np.zeros(min(s.k, self.op.size))
            return Eigenpairs(zeros, [], zeros, "∇²L is 0")

    @cached_property
    def density(self) -> SpectralDensity:
        return quadrature.spectrum(self.op, self.settings.probes, seed=self.settings.seed)

    @cached_property
    def gradient(self) -> np.ndarray:
        return self.op.gradient_at(self.theta)

    @cached_property
    def gauss_newton_trace(self) -> float:
        self.check_parts()
        return self.op.gauss_newton_sum()

    def check_parts(self) -> None:
        if not self.op.parts:
            raise NotDefined("a sample's outputs depend on the rest of its batch")

    def batches(self) -> Iterator[Operator]:
        """The samples in a random order, m at a time."""
        self.check_parts()
        order = generator(self.settings.seed, "league/batches").permutation(self.op.samples)
        for start in range(0, len(order), self.settings.m):
            yield self.op.part(np.sort(order[start : start + self.settings.m]))

    def by_name(self, v: np.ndarray) -> dict[str, np.ndarray]:
        return self.op.by_name(v)


def trace(of: Subject) -> Quantity:
    return of.diagonal.trace


def gauss_newton_trace(of: Subject) -> Quantity:
    return Quantity(of.gauss_newton_trace, "exact")


def least_trace(of: Subject) -> Quantity:
    found = balanced_trace(of.op, of.diagonal)
    if isinstance(found, str):
        raise NotDefined(found)
    return Quantity(found.value, _certified(found.value, found.lower_bound))


def _certified(value: float, lower: float) -> str:
    gap = value / lower - 1 if lower > 0 else float(value > 0)
    return f"exact: balanced, certified to {gap:.0e}"


def minimum_sharpness(of: Subject) -> Quantity:
    units = of.op.structure.units
    if isinstance(units, str):
        raise NotDefined(units)
    if of.diagonal.stderr > 0:
        raise NotDefined("the diagonal of ∇²L is only estimated")
    try:
        found = flattest(layerwise(units), of.diagonal.entries)
    except Unbounded:
        raise NotDefined("∇²L has negative diagonal entries; train further") from None
    return Quantity(found.value, _certified(found.value, found.lower_bound))


def top_eigenvalue(of: Subject) -> Quantity:
    return Quantity(float(of.top.values[0]), _by_top(of), residual=float(of.top.residuals[0]))


def _by_top(of: Subject) -> str:
    route = of.top.route
    return route if route.startswith("estimate") else f"exact: {route}"


def top_eigenvalues(of: Subject) -> Quantity:
    route = f"{_by_top(of)}, the sum of {len(of.top.values)}"
    return Quantity(float(of.top.values.sum()), route, residual=float(of.top.residuals.max()))


def spectrum(of: Subject) -> Quantity:
    """√(mean λ²), with the standard error of the mean carried through the root."""
    mean, stderr = of.density.mean(np.square)
    root = float(np.sqrt(mean))
    route = f"estimate: Lanczos quadrature, {of.settings.probes} probes"
    return Quantity(root, route, stderr / (2 * root) if root else 0.0)


def adaptive_average(of: Subject) -> Quantity:
    squares = of.by_name(of.theta**2)
    half = of.settings.adaptive_rho**2 / 2
    entries = of.diagonal.entries
    value = half * sum(float(np.sum(squares[name] * H)) for name, H in entries.items())
    if of.diagonal.stderr:
        raise NotDefined("the diagonal of ∇²L is only estimated")
    return Quantity(value, of.diagonal.route)


def _by_ascent(of: Subject, what: str = "") -> str:
    return f"lower bound: ascent, {of.settings.steps} steps from each start{what}"


def adaptive_worst(of: Subject) -> Quantity:
    s = of.settings
    found = rise(of.op, s.adaptive_rho, s.steps, s.seed, np.abs(of.theta))
    return Quantity(found, _by_ascent(of))


def ball(of: Subject) -> Quantity:
    s = of.settings
    return Quantity(rise(of.op, s.rho, s.steps, s.seed), _by_ascent(of))


def m_sharpness(of: Subject) -> Quantity:
    s = of.settings
    found = [(rise(part, s.rho, s.steps, s.seed), part.samples) for part in of.batches()]
    values, sizes = np.array(found).T
    return Quantity(float(values @ sizes / sizes.sum()), _by_ascent(of, f", batches of {s.m}"))


def relative_flatness(of: Subject) -> Quantity:
    """Σ_ss′ ⟨w_s, w_s′⟩ Tr H_ss′ = Σ_k μ_k Σ_t (a_k ⊗ e_t)ᵀ H (a_k ⊗ e_t) for
    W Wᵀ = Σ μ_k a_k a_kᵀ,
    W having a row for each output s."""
    name, W, place = _feature_layer(of)
    values, vectors = np.linalg.eigh(W @ W.T)
    kept = values > 1e-14 * values[-1]
    values, vectors, width = values[kept], vectors[:, kept].T, W.shape[1]
    if len(values) * width <= _MOST_PRODUCTS:
        probes, route = np.eye(width), f"exact: all columns of layer {name}"
    else:
        rng = generator(of.settings.seed, "league/relative")
        probes = rng.choice([-1.0, 1.0], (max(2, _MOST_PRODUCTS // len(values) // 4), width))
        route = f"estimate: {len(probes)} probes of layer {name}"
    forms = _forms(of.op, [place(np.outer(a, z)) for z in probes for a in vectors])
    each = forms.reshape(len(probes), len(values)) @ values
    if route.startswith("exact"):
        return Quantity(float(each.sum()), route)
    return Quantity(float(each.mean()), route, standard_error(each))


def _forms(op: Operator, vectors: list[np.ndarray]) -> np.ndarray:
    """vᵀ∇²L v for each, some at once; the last block is filled up, so that one compiled shape
    serves all."""
    found = []
    for start in range(0, len(vectors), ROWS_AT_ONCE):
        rows = np.stack(vectors[start : start + ROWS_AT_ONCE])
        filled = np.zeros((ROWS_AT_ONCE, op.size))
        filled[: len(rows)] = rows
        found.append(np.vecdot(rows, op.matmat(filled)[: len(rows)]))
    return np.concatenate(found)


def _feature_layer(of: Subject):
    """Name and weight of the layer that feeds the outputs, (outputs, inputs), and the vector of R^p
    that has a matrix of that shape in its place."""
    name = of.settings.layer or _found_layer(of.op)
    weights = of.by_name(of.theta)
    if name not in weights:
        raise unknown("layer", name, weights)
    weight, outputs = weights[name], int(np.size(of.op.outputs()[:1]))
    first = weight.ndim > 1 and weight.shape[0] == outputs
    last = weight.ndim > 1 and weight.shape[-1] == outputs and not first
    if not (first or last or outputs == 1):
        raise NotDefined(f"the weight {name} has no axis for the {outputs} outputs")
    numbers = of.by_name(np.arange(of.op.size))[name]
    numbers = np.moveaxis(numbers, -1, 0) if last else numbers
    numbers = numbers.reshape(outputs, -1).astype(int)

    def place(matrix: np.ndarray) -> np.ndarray:
        v = np.zeros(of.op.size)
        v[numbers] = matrix
        return v

    return name, of.theta[numbers], place


def _found_layer(op: Operator) -> str:
    """The one weight from hidden units to the outputs."""
    units = op.structure.units
    if isinstance(units, str):
        raise NotDefined("the layer that feeds the outputs is not found; give its weight as layer=")
    component = units.components()
    fixed = {
        name: [bool((component[side] == FIXED).all()) for side in (end.target, end.source)]
        for name, end in units.ends.items()
    }
    found = [name for name, (target, source) in fixed.items() if target and not source]
    if len(found) != 1:
        raise NotDefined("no single layer feeds the outputs; give its weight as layer=")
    return found[0]


def fisher_rao(of: Subject) -> Quantity:
    of.check_parts()
    return Quantity(of.op.gauss_newton_form(of.theta), "exact")


def normalized_sharpness(of: Subject) -> Quantity:
    if of.diagonal.stderr > 0:
        raise NotDefined("the diagonal of ∇²L is only estimated")
    found = normalized(of.by_name(of.theta), of.diagonal.entries)
    return Quantity(found.value, _certified(found.value, found.lower_bound))


def normalized(weights: Mapping[str, np.ndarray], entries: Mapping[str, np.ndarray]) -> Balance:
    """Σ over weights of min over σ, σ′ > 0 of Σ_ij H_ij σ_i² σ′_j² + W_ij² / (σ_i² σ′_j²).

    With t = 2 log σ on rows and −2 log σ′ on columns that is Σ H_ij exp(t_i − t_j) + W_ij²
    exp(t_j − t_i): masses H from rows to columns and W² from columns to rows, balanced, with the
    certificate of `balancing`. Kernels are summed over; a vector is a matrix of one column.
    """
    couplings = []
    for name, weight in weights.items():
        H, squares = (_matrix(a) for a in (entries[name], np.square(weight)))
        H = np.where((H < 0) & (-1e-12 * np.abs(H).max(initial=0) < H), 0.0, H)
        if (H < 0).any():
            raise NotDefined("∇²L has negative diagonal entries; train further")
        rows, columns = f"{name}/rows", f"{name}/columns"
        couplings += [Coupling(columns, rows, H.T), Coupling(rows, columns, squares)]
    return balance(couplings)


def _matrix(weight: np.ndarray) -> np.ndarray:
    shape = (*np.shape(weight), 1, 1)[:2]
    return np.reshape(weight, (*shape, -1)).sum(axis=2)


def pac_bayes(of: Subject) -> Quantity:
    return _noise(of, np.ones(of.op.size))


def pac_bayes_magnitude(of: Subject) -> Quantity:
    return _noise(of, np.abs(of.theta))


def _noise(of: Subject, scale: np.ndarray) -> Quantity:
    """1/σ² for the σ at which L rises by `increase` on average over normal draws z, the same for
    every σ: L(θ + σ s ⊙ z). Bracketed by doubling, then bisected."""
    s, before = of.settings, of.op.mean_loss()
    rng = generator(s.seed, "league/noise")
    moves = [scale * rng.normal(size=of.op.size) for _ in range(s.draws)]

    def increases(sigma: float) -> np.ndarray:
        return np.array([of.op.loss_at(of.theta + sigma * move) for move in moves]) - before

    low, high = _bracket(lambda sigma: bool(increases(sigma).mean() < s.increase))
    for _ in range(12):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if increases(middle).mean() < s.increase else (low, middle)
    sigma = float(np.sqrt(low * high))
    # dL/dσ from points 1 % apart carries the error of the mean to σ.
    slope = (increases(1.01 * sigma).mean() - increases(sigma).mean()) / (0.01 * sigma)
    error = standard_error(increases(sigma)) / abs(slope) if slope else np.inf
    route = f"estimate: σ = {sigma:.3g}, {s.draws} draws"
    return Quantity(sigma**-2, route, 2 * error * sigma**-3)


def _bracket(small: Callable[[float], bool]) -> tuple[float, float]:
    """A σ that is too small and twice that, which is not."""
    sigma = 0.01
    if small(sigma):
        while small(2 * sigma):
            sigma *= 2
            if sigma > 1e12:
                raise NotDefined("no noise in the parameters raises the loss so far")
        return sigma, 2 * sigma
    while not small(sigma / 2):
        sigma /= 2
        if sigma < 1e-12:
            raise NotDefined("the smallest noise in the parameters raises the loss further")
    return sigma / 2, sigma


def gradient_norm(of: Subject) -> Quantity:
    return Quantity(float(np.linalg.norm(of.gradient)), "exact")


def batch_sharpness(of: Subject) -> Quantity:
    found = []
    for part in of.batches():
        g = part.gradient_at(of.theta)
        if np.linalg.norm(g) > _NO_GRADIENT * np.sqrt(abs(of.gauss_newton_trace)):
            found.append(float(g @ part.matvec(g) / (g @ g)))
    if not found:
        raise NotDefined("every batch's gradient is 0: an interpolator")
    route = f"estimate: {len(found)} batches of {of.settings.m}"
    return Quantity(float(np.mean(found)), route, standard_error(np.array(found)))


def edge(of: Subject) -> Quantity:
    if of.settings.lr is None:
        raise NotDefined("no step size is given: lr=")
    residual = float(of.top.residuals[0])
    return Quantity(of.settings.lr * float(of.top.values[0]) / 2, _by_top(of), residual=residual)
