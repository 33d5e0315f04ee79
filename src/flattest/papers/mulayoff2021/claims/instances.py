"""Random minima, keyed by the claim's name so that every run checks the same ones.

Minima are free: any network is an interpolator of its own outputs.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

import flattest as ft
from flattest.ledger.adversary import Array, Family
from flattest.problem.randomness import generator
from flattest.stability.dynamics import linearized_descent
from flattest.stability.functions import UnivariateNetwork
from flattest.stability.modes import modes, tangent_features, with_knots_at


def random_network(rng: np.random.Generator, width: int, spread: float = 1.0) -> UnivariateNetwork:
    w1, b1, w2 = rng.normal(size=(3, width))
    return UnivariateNetwork(w1, spread * b1, w2, float(rng.normal()))


def random_inputs(rng: np.random.Generator, n: int, spread: float = 1.0) -> np.ndarray:
    return spread * ((np.arange(n) + 0.5 + rng.uniform(-0.4, 0.4, n)) * 2 / n - 1)


def own_data(network: UnivariateNetwork, x: np.ndarray) -> ft.Dataset:
    """The dataset that the network interpolates."""
    return ft.Dataset(x[:, None], network(x))


def architecture(network: UnivariateNetwork) -> ft.MLP:
    return ft.MLP(network.width, bias=True, output_bias=True)


def flattest(network: UnivariateNetwork, x: np.ndarray) -> ft.FlattestImplementation:
    return ft.flattest_implementation(architecture(network), network.params, own_data(network, x))


def networks(purpose: str, count: int, n: int = 6, width: int = 8):
    """`count` random networks and inputs, of spreads from 0.1 to 10."""
    for index in range(count):
        rng = generator(0, f"mulayoff2021/{purpose}", index)
        spread = 10 ** rng.uniform(-1, 1)
        yield random_network(rng, width, spread), random_inputs(rng, n, spread)


def networks_with_knots_on_data(purpose: str, count: int, n: int = 6, width: int = 8):
    """Random networks with one to four knots exactly on inputs."""
    for index in range(count):
        rng = generator(0, f"mulayoff2021/{purpose}", index)
        network, x = random_network(rng, width), random_inputs(rng, n, 2.0)
        toggling = int(rng.integers(1, 5))
        network.b1[:toggling] = -network.w1[:toggling] * rng.choice(x, toggling)
        yield network, x


Measure = Callable[[UnivariateNetwork, np.ndarray], float]
# (n, k), and with how many knots on inputs.
SIZES = ((2, 2), (3, 4), (6, 6))
SIZES_WITH_KNOTS = ((2, 2, 1), (3, 4, 2), (6, 6, 3))
# A knot on an input is a small share of many inputs: where Theorem 2 excludes anything.
SIZES_WITH_FEW_KNOTS = ((10, 10, 1), (20, 3, 1))


def families(measure: Measure, starts: Sequence[Array] = ()) -> Iterator[Family]:
    """z = (x, w1, b1, w2): any inputs and any network, at its own outputs.

    `starts` are of the first size.
    """
    for n, width in SIZES:

        def measured(z: Array, n: int = n) -> float:
            return measure(*decoded(z, n))

        own = tuple(starts) if (n, width) == SIZES[0] else ()
        yield Family(f"n = {n}, k = {width}", n + 3 * width, measured, own)


def families_with_knots_on_data(
    measure: Measure, sizes: Sequence[tuple[int, int, int]] = SIZES_WITH_KNOTS, start=None
) -> Iterator[Family]:
    """The same, where the last neurons have their knots on the second last input and on those
    before it, so that their biases are not free. `start` is of the last size."""
    for n, width, knots in sizes:
        pairs = np.array([((n - 2 - i) % n, width - 1 - i) for i in range(knots)])

        def measured(z: Array, n: int = n, pairs: np.ndarray = pairs) -> float:
            network, x = decoded(z, n)
            return measure(with_knots_at(network, x, pairs), x)

        starts = (start,) if start is not None and (n, width, knots) == sizes[-1] else ()
        name = f"n = {n}, k = {width}, {knots} of the knots on inputs"
        yield Family(name, n + 3 * width, measured, starts)


def decoded(z: Array, n: int) -> tuple[UnivariateNetwork, np.ndarray]:
    """Inputs and network; b2 = 0, which neither Φ nor f″ depends on."""
    w1, b1, w2 = z[n:].reshape(3, -1).copy()
    return UnivariateNetwork(w1, b1, w2, 0.0), z[:n]


def encoded(network: UnivariateNetwork, x: np.ndarray) -> Array:
    """The z of a network and its inputs."""
    return np.concatenate([x, network.w1, network.b1, network.w2])


def absolute_value(height: float) -> tuple[UnivariateNetwork, np.ndarray]:
    """f = h|x| on x = ±1, by one neuron to each side: it attains Lemma 4's bound."""
    return (
        UnivariateNetwork(np.array([1.0, -1.0]), np.zeros(2), np.full(2, height), 0.0),
        np.array([-1.0, 1.0]),
    )


def absolute_value_with_a_knot_on_data() -> tuple[UnivariateNetwork, np.ndarray]:
    """f = 5|x| on inputs near ±1, with a neuron whose knot is one of them and which hardly counts.

    Its parameters are those of the flattest implementation, so that 1 + 2∫|f″|g is attained; with
    many inputs one toggle is a small share of them.
    """
    height, little = 5.0, 1e-3
    one_side = 1 - 1e-6 * np.arange(10)
    x = np.sort(np.concatenate([-one_side, one_side]))
    w1 = np.sqrt(np.sqrt(2) * height)
    w2 = height / w1
    b1 = np.array([0, 0, -little * x[-2]])
    return UnivariateNetwork(np.array([w1, -w1, little]), b1, np.array([w2, w2, little]), 0.0), x


def mode_hessians(network: UnivariateNetwork, x: np.ndarray) -> list[np.ndarray]:
    features = (tangent_features(network, x, pattern) for pattern in modes(network, x))
    return [phi @ phi.T / x.size for phi in features]


def step_lengths(
    network: UnivariateNetwork, x: np.ndarray, q: np.ndarray, lr: float
) -> list[float]:
    """‖θ_1 − θ*‖/ε after one step of gradient descent from θ* ± εq."""
    batch = [np.arange(x.size)]
    ends = [linearized_descent(network, x, sign * q, lr, batch)[-1] for sign in (1, -1)]
    return [float(np.linalg.norm(end)) for end in ends]
