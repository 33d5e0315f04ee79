"""Random minima, keyed by the claim's name so that every run checks the same ones.

Minima are free: any network is an interpolator of its own outputs.
"""

import numpy as np

import flattest as ft
from flattest.problem.randomness import generator
from flattest.stability.dynamics import linearized_descent
from flattest.stability.functions import UnivariateNetwork
from flattest.stability.modes import modes, tangent_features


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
