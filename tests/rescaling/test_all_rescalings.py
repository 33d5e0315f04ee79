"""All rescalings of a network, written by hand, and an optimizer over them: nothing is below what
is called proven. Where a walk cannot follow them all there is no least trace."""

import numpy as np
import pytest
from scipy.optimize import minimize

import flattest as ft
from support.modules import MARKS, F, nn, one_thread, torch  # noqa: F401

pytestmark = MARKS


class Made(nn.Module):
    """A function of x and of parts: a(x) of six units, then b."""

    def __init__(self, run, **parts):
        super().__init__()
        self.run, self.a, self.b = run, nn.Linear(4, 6), nn.Linear(6, 1)
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.run(self, x)


def into(θ, layer, by):
    θ[f"{layer}.weight"] = θ[f"{layer}.weight"] * by[:, None]
    θ[f"{layer}.bias"] = θ[f"{layer}.bias"] * by


def pasted(m, x):
    """Zeros, to a part of which is added."""
    h = torch.zeros(len(x), 2, 6, dtype=x.dtype)
    h[:, 1] += m.a(x).relu()
    return m.b(h[:, 1])


def units(θ, s):
    into(θ, "a", s[:6])
    θ["b.weight"] = θ["b.weight"] / s[:6]


def shared_factor(θ, s):
    units(θ, s)
    θ["t"], θ["b.weight"] = θ["t"] * s[6], θ["b.weight"] / s[6]


def two_factors(θ, s):
    into(θ, "a", s[:6])
    into(θ, "c", s[6:])
    θ["b.weight"] = θ["b.weight"] / (s[:6] * s[6:])


def both(θ, s):
    into(θ, "a", s)
    into(θ, "c", s)
    θ["b.weight"] = θ["b.weight"] / s


def windows(θ, s):
    into(θ, "a", s.repeat_interleave(2))
    θ["b.weight"] = θ["b.weight"] / s


def permuted(θ, s):
    into(θ, "a", s)
    θ["b.weight"] = θ["b.weight"] / s.roll(2)


def factors(θ, s):
    into(θ, "a", s[:6])
    θ["g"], θ["b.weight"] = θ["g"] * s[6:] / s[:6], θ["b.weight"] / s[6:]


def thirds(θ, s):
    into(θ, "a", s[:2].repeat(3))
    θ["b.weight"] = θ["b.weight"] / s[:2]


def all_but(held):
    def act(θ, s):
        units(θ, torch.cat([s[:held], torch.ones(1), s[held:]]))

    return act


def held_at(values):
    """Units but those that a constant is added to."""

    def act(θ, s):
        units(θ, torch.where(torch.tensor(values) == 0, s, 1.0))

    return act


def gains(θ, s):
    """Units before and behind a norm without a mean, and its gain between them."""
    into(θ, "a", s[:6])
    θ["n.weight"] = θ["n.weight"] * s[6:] / s[:6]
    θ["n.bias"], θ["b.weight"] = θ["n.bias"] * s[6:], θ["b.weight"] / s[6:]


def rows_and_columns(θ, s):
    θ["B"] = θ["B"] * s[:6, None] / s[6:]
    θ["A"], θ["b.weight"] = θ["A"] * s[6:, None], θ["b.weight"] / s[:6]


def taps(θ, s):
    """Windows that do not overlap: what meets one place of the kernel has one scale."""
    into(θ, "a", s.repeat(3))
    θ["k"] = θ["k"] / s


def aside(m, x):
    """What is computed beside the outputs, for a log or a second head, ties nothing."""
    h = m.a(x).relu()
    h.tanh(), h.amax(1), h > 0.3
    return m.b(h)


def one_by_two(m, x):
    """Of the units that go into a bounded function half go on."""
    h = m.a(x)
    bounded = F.hardtanh(h)
    return m.b(torch.cat([bounded[:, :2], bounded[:, torch.tensor([2])], h.relu()[:, 3:]], 1))


def masks(m, x):
    h, mask = m.a(x).relu(), torch.tensor([1.0, 1, 1, 0, 0, 0], dtype=x.dtype)
    return m.t * (h * mask).sum(1, keepdim=True) + m.b(h)


def of_masks(θ, s):
    s = torch.cat([s[:1].repeat(3), s[1:]])
    units(θ, s)
    θ["t"] = θ["t"] / s[0]


def lower(m, x):
    return m.b((x @ m.w.tril().T).relu())


def rows(θ, s):
    θ["w"], θ["b.weight"] = θ["w"] * s[:, None], θ["b.weight"] / s


def no_diagonal(m, x):
    """Weights that are filled with zeros, each of which is one by itself."""
    w = m.w.masked_fill(torch.eye(6, 4) > 0, 0.0)
    return m.b((x @ w.T).relu())


def half_free(θ, s):
    units(θ, torch.cat([torch.ones(3), s]))


HALF = torch.arange(6) < 3


def chosen(m, x):
    h = m.a(x)
    return m.b(torch.where(HALF, F.hardtanh(h), h))


def filled(m, x):
    h = m.a(x)
    return m.b(F.hardtanh(h).masked_fill(~HALF, 0.0) + h.masked_fill(HALF, 0.0))


def multiplied(m, x):
    h, mask = m.a(x), HALF.to(x.dtype)
    return m.b(F.hardtanh(h) * mask + h * (1 - mask))


def multiplied_before(m, x):
    """0 goes into the bounded function, and comes out."""
    h, mask = m.a(x), HALF.to(x.dtype)
    return m.b(F.hardtanh(h * mask) + h * (1 - mask))


def diagonal(m, x):
    h, mask = m.a(x), HALF.to(x.dtype)
    return m.b(F.hardtanh(h) @ torch.diag(mask) + h @ torch.diag(1 - mask))


def queries(m, x):
    """Words of the places, the same for all samples, have a unit for each place."""
    words = m.e(torch.arange(3)).relu().reshape(1, -1)
    return m.b((m.a(x) + words @ m.w.T).relu())


def places(θ, s):
    units(θ, s[:6])
    θ["e.weight"] = θ["e.weight"] * s[6:].reshape(3, 2)
    θ["w"] = θ["w"] * s[:6, None] / s[6:]


def masked_rows(m, x):
    """Rows that meet one weight, with zeros that scale with anything."""
    h = m.a(x).relu().reshape(-1, 2, 3) * torch.tensor([1.0, 1, 0], dtype=x.dtype)
    return m.b(F.linear(h, m.w, m.g).relu().flatten(1))


def of_rows(θ, s):
    into(θ, "a", torch.cat([s[:2], torch.ones(1)]).repeat(2))
    θ["w"] = θ["w"] * s[2:, None] / torch.cat([s[:2], torch.ones(1)])
    θ["g"], θ["b.weight"] = θ["g"] * s[2:], θ["b.weight"] / s[2:].repeat(2)


def beside(m, x):
    h = m.a(x).relu()
    moved = torch.zeros_like(h)
    moved[:, 3:] = h[:, :3]
    return m.b((h + moved)[:, 3:])


def some_out(m, x):
    h = m.a(x).relu().reshape(-1, 3, 2).clone()
    h[:, 0] = 0
    return m.b(h.sum(1))


def pairs_of(θ, s):
    into(θ, "a", s.repeat(2))
    θ["b.weight"] = θ["b.weight"] / s


def fresh_norm():
    norm = nn.BatchNorm1d(6)
    with torch.no_grad():
        norm.weight.normal_(), norm.bias.normal_()
    return norm


ADDED = [0.0, 0.7, 0.0, 0.0, -0.4, 0.0]


def scalar(value):
    return nn.Parameter(torch.tensor(value))


OTHER = {"c": lambda: nn.Linear(4, 6)}


def weights(*shape):
    return nn.Parameter(torch.randn(shape))


NO_UNITS = {"a": nn.Identity, "b": lambda: nn.Linear(4, 1)}
SIX = lambda: nn.Linear(6, 1)  # noqa: E731
FOLLOWED = {
    "units": (lambda m, x: m.b(m.a(x).relu()), {}, units, 6),
    "a sum in place": (
        lambda m, x: m.b(torch.zeros(len(x), 6, dtype=x.dtype).add_(m.a(x).relu())),
        {},
        units,
        6,
    ),
    "a product in place": (
        lambda m, x: m.b(torch.ones(len(x), 6, dtype=x.dtype).mul_(m.a(x).relu())),
        {},
        units,
        6,
    ),
    "a part in place": (pasted, {}, units, 6),
    "a step times its value": (lambda m, x: m.b((h := m.a(x)) * (h > 0)), {}, units, 6),
    "half of h + |h|": (lambda m, x: m.b(((h := m.a(x)) + h.abs()) / 2), {}, units, 6),
    "filled with 0": (lambda m, x: m.b((h := m.a(x)).masked_fill(h < 0, 0.0)), {}, units, 6),
    "a gate of the data": (lambda m, x: m.b(m.a(x) * x[:, :1]), {}, units, 6),
    "the larger of two": (
        lambda m, x: m.b(torch.maximum(m.a(x), m.c(x))),
        OTHER,
        both,
        6,
    ),
    "a factor each": (
        lambda m, x: m.b(m.a(x).relu() * m.g),
        {"g": lambda: nn.Parameter(torch.randn(6))},
        factors,
        12,
    ),
    "others beside the outputs": (aside, {}, units, 6),
    "half of what is bounded": (one_by_two, {}, half_free, 3),
    "a constant mask": (masks, {"t": lambda: weights()}, of_masks, 4),
    "half a matrix": (lower, NO_UNITS | {"w": lambda: weights(4, 4)}, rows, 4),
    "no diagonal": (no_diagonal, {**NO_UNITS, "w": lambda: weights(6, 4), "b": SIX}, rows, 6),
    "words of places": (
        queries,
        {"e": lambda: nn.Embedding(3, 2), "w": lambda: weights(6, 6)},
        places,
        12,
    ),
    "masked rows": (
        masked_rows,
        {"w": lambda: weights(2, 3), "g": lambda: weights(2), "b": lambda: nn.Linear(4, 1)},
        of_rows,
        4,
    ),
    "moved beside zeros": (beside, {"b": lambda: nn.Linear(3, 1)}, pairs_of, 3),
    "some set to 0, then summed": (some_out, {"b": lambda: nn.Linear(2, 1)}, thirds, 2),
    "a constant for some": (
        lambda m, x: m.b((m.a(x) + torch.tensor(ADDED, dtype=x.dtype)).relu()),
        {},
        held_at(ADDED),
        6,
    ),
    "one filled with 1": (
        lambda m, x: m.b(m.a(x).relu().masked_fill(torch.arange(6) == 2, 1.0)),
        {},
        all_but(2),
        5,
    ),
    "a batch norm without a mean": (
        lambda m, x: m.b(m.n(m.a(x)).relu()),
        {"n": fresh_norm},
        gains,
        12,
    ),
    "turned by a matrix": (
        lambda m, x: m.b(m.a(x).relu() @ torch.eye(6, dtype=x.dtype).roll(2, 1)),
        {},
        permuted,
        6,
    ),
    "chosen by a constant": (chosen, {}, half_free, 3),
    "filled by a constant": (filled, {}, half_free, 3),
    "a constant factor": (multiplied, {}, half_free, 3),
    "a diagonal of a constant": (diagonal, {}, half_free, 3),
    "bounded behind a constant factor": (multiplied_before, {}, half_free, 3),
    "turned by places": (lambda m, x: m.b(m.a(x).relu().roll(2, 1)), {}, permuted, 6),
}
# What holds units together that are free, so that a least over the rest would be too large.
LOST = {
    "a factor for all": (
        lambda m, x: m.b(m.t * m.a(x).relu()),
        {"t": lambda: scalar(0.7)},
        shared_factor,
        7,
        "one of its weights scales several units",
    ),
    "a bilinear gate": (
        lambda m, x: m.b(m.a(x) * m.c(x)),
        OTHER,
        two_factors,
        12,
        "multiplies two of its values",
    ),
    "ReGLU": (
        lambda m, x: m.b(m.a(x).relu() * m.c(x)),
        OTHER,
        two_factors,
        12,
        "multiplies two of its values",
    ),
    "pooled in pairs": (
        lambda m, x: m.b(F.max_pool1d(m.a(x)[:, None], 2)[:, 0]),
        {"b": lambda: nn.Linear(3, 1)},
        windows,
        3,
        "pools units of their own",
    ),
    "a product of two weights": (
        lambda m, x: m.b((x @ (m.B @ m.A).t()).relu() + 0 * m.a(x)),
        {
            "A": lambda: nn.Parameter(torch.randn(2, 4)),
            "B": lambda: nn.Parameter(torch.randn(6, 2)),
        },
        rows_and_columns,
        8,
        "one weight meets units of several scales",
    ),
    "windows that do not overlap": (
        lambda m, x: m.b(F.conv1d(m.a(x).relu()[:, None], m.k[None, None], stride=2)[:, 0]),
        {"k": lambda: nn.Parameter(torch.randn(2)), "b": lambda: nn.Linear(3, 1)},
        taps,
        2,
        "one weight meets units of several scales",
    ),
    "inputs beside zeros": (
        lambda m, x: m.b((m.a(x) + F.pad(x, (0, 2))).relu()),
        {},
        held_at([1.0] * 4 + [0.0] * 2),
        6,
        "0 for a sample",
    ),
}


def made(run, parts):
    torch.manual_seed(0)
    module = Made(run, **{name: part() for name, part in parts.items()}).double().eval()
    return module, torch.randn(12, 4).double(), torch.randn(12, 1).double()


def least_by_hand(module, x, act, count):
    """The least Gauss–Newton trace of the squared loss over the scales `act` takes, from three
    starts; these keep the outputs."""
    θ = {name: p.detach() for name, p in module.named_parameters()}

    def at(z):
        changed = dict(θ)
        act(changed, torch.exp(z))
        return changed

    def outputs(θ):
        return torch.func.functional_call(module, θ, (x,))

    rng = np.random.default_rng(0)
    starts = rng.normal(size=(3, count)) / 2
    assert torch.allclose(outputs(at(torch.tensor(starts[0]))), outputs(θ), rtol=0, atol=1e-10)

    def value(z):
        z = torch.tensor(z, requires_grad=True)
        J = torch.func.jacrev(outputs)(at(z))
        found = 2 / len(x) * sum(j.square().sum() for j in J.values())
        return found.item(), torch.autograd.grad(found, z)[0].numpy()

    options = {"maxiter": 1000, "ftol": 1e-15, "gtol": 1e-10}
    return min(minimize(value, z, jac=True, method="L-BFGS-B", options=options).fun for z in starts)


@pytest.mark.parametrize("name", FOLLOWED)
def test_an_optimizer_over_all_rescalings_finds_the_least_and_nothing_below_its_bound(name):
    run, parts, act, count = FOLLOWED[name]
    module, x, y = made(run, parts)
    found = ft.torch.measure(module, (x, y), "mse", tol=None)
    best = least_by_hand(module, x, act, count)
    assert best >= found.least_lower_bound * (1 - 1e-12)
    assert best == pytest.approx(found.least, rel=1e-6)
    assert found.least < 0.99 * found.trace


@pytest.mark.parametrize("name", LOST)
def test_where_rescalings_are_lost_there_is_no_least_trace_and_the_trace_stays_exact(name):
    run, parts, act, count, words = LOST[name]
    module, x, y = made(run, parts)
    found = ft.torch.measure(module, (x, y), "mse", tol=None)
    assert found.method.startswith("exact: Gauss–Newton")
    assert least_by_hand(module, x, act, count) < 0.99 * found.trace
    assert found.least is None
    assert words in found.notes[0]


def test_a_gate_between_0_and_1_leaves_what_it_lets_through_its_scale():
    module, x, y = made(lambda m, x: m.b(m.a(x) * m.c(x).sigmoid()), OTHER)
    found = ft.torch.measure(module, (x, y), "mse", tol=None)
    other, s = made(module.run, OTHER)[0], torch.linspace(0.5, 2, 6).double()
    with torch.no_grad():
        other.a.weight *= s[:, None]
        other.a.bias *= s
        other.b.weight /= s
    elsewhere = ft.torch.measure(other, (x, y), "mse", tol=None)
    assert torch.allclose(other(x), module(x), rtol=0, atol=1e-12)
    assert elsewhere.trace != pytest.approx(found.trace, rel=1e-3)
    assert elsewhere.least == pytest.approx(found.least, rel=1e-8)
    assert found.least < found.trace


def beside_the_outputs(p, h):
    import jax.numpy as jnp

    jnp.tanh(h), h.mean()
    return h @ p["a"]


def partly_bounded(p, h):
    import jax.numpy as jnp

    return jnp.concatenate([jnp.tanh(h)[:, :2], h[:, 2:]], 1) @ p["a"]


def masked(p, h):
    return (h * np.array([1.0, 1, 1, 0, 0])).sum(1) * p["t"] + h @ p["a"]


def whole(p, h):
    """Rescaled, units would stay below 1 on these data, and not on others."""
    import jax.numpy as jnp

    return jnp.where(h.astype(int) == 0, h, 0.5 * h) @ p["a"]


def of_places(p, h):
    import jax.numpy as jnp

    words = jnp.abs(jnp.take(p["e"], jnp.arange(2), axis=0)).reshape(-1)
    return h @ p["a"] + words @ p["f"]


HALF_OF_FIVE = np.array([1.0, 1, 0, 0, 0])


def chosen_in_jax(p, h):
    import jax.numpy as jnp

    return jnp.where(HALF_OF_FIVE > 0, jnp.tanh(h), h) @ p["a"]


def multiplied_in_jax(p, h):
    import jax.numpy as jnp

    return (jnp.tanh(h) * HALF_OF_FIVE + h * (1 - HALF_OF_FIVE)) @ p["a"]


def behind_a_factor(p, h):
    import jax.numpy as jnp

    return (jnp.tanh(h * HALF_OF_FIVE) + h * (1 - HALF_OF_FIVE)) @ p["a"]


def diagonal_in_jax(p, h):
    import jax.numpy as jnp

    return (jnp.tanh(h) @ np.diag(HALF_OF_FIVE) + h @ np.diag(1 - HALF_OF_FIVE)) @ p["a"]


# The scales of five units: 0 for what is held, the same number for what scales together.
IN_JAX = {
    "beside the outputs": (beside_the_outputs, {}, [1, 2, 3, 4, 5]),
    "partly bounded": (partly_bounded, {}, [0, 0, 1, 2, 3]),
    "chosen by a constant": (chosen_in_jax, {}, [0, 0, 1, 2, 3]),
    "a constant factor": (multiplied_in_jax, {}, [0, 0, 1, 2, 3]),
    "behind a constant factor": (behind_a_factor, {}, [0, 0, 1, 2, 3]),
    "a diagonal of a constant": (diagonal_in_jax, {}, [0, 0, 1, 2, 3]),
    "masked": (masked, {"t": ()}, [1, 1, 1, 2, 3]),
    "whole numbers": (whole, {}, [0, 0, 0, 0, 0]),
    "words of places": (of_places, {"e": (2, 2), "f": (4,)}, [1, 2, 3, 4, 5]),
}


@pytest.mark.parametrize("name", IN_JAX)
def test_functions_of_jax_have_the_rescalings_of_what_is_used(name):
    import jax

    from flattest.rescaling.jaxpr import structure_of

    network, more, expected = IN_JAX[name]
    rng = np.random.default_rng(0)
    shapes = {"W": (4, 5), "b": (5,), "a": (5,)} | more
    params = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    x = rng.normal(size=(1, 4))
    f = lambda p, x: network(p, jax.nn.relu(x @ p["W"] + p["b"]))  # noqa: E731
    units = structure_of(jax.make_jaxpr(f)(params, x), params, x).units
    component = units.components()
    found = component[units.ends["W"].target][0]
    _, first, same = np.unique(found, return_index=True, return_inverse=True)
    assert np.array_equal(found == 0, np.array(expected) == 0)
    assert np.array_equal(first[same], [expected.index(e) for e in expected])
    if name == "words of places":
        assert len(np.unique(component[units.ends["e"].target])) == 4


@pytest.mark.parametrize("name", ["gate", "factor"])
def test_functions_of_jax_lose_the_same_rescalings(name):
    import jax

    def gate(p, x):
        return (x @ p["V"]) * jax.nn.relu(x @ p["W"]) @ p["a"]

    def factor(p, x):
        return p["t"] * jax.nn.relu(x @ p["W"]) @ p["a"]

    rng = np.random.default_rng(0)
    given = {"V": rng.normal(size=(4, 3)), "W": rng.normal(size=(4, 3)), "a": rng.normal(size=3)}
    if name == "factor":
        given["t"] = np.array(0.7)
        del given["V"]
    found = ft.measure(
        gate if name == "gate" else factor, given, (rng.normal(size=(5, 4)), rng.normal(size=5))
    )
    assert found.method.startswith("exact: Gauss–Newton")
    assert found.least is None
    assert "not followed" in found.notes[0]


def test_samples_that_follow_one_another_are_no_samples_for_jax_either():
    import jax.numpy as jnp

    rng = np.random.default_rng(0)
    data = rng.normal(size=(5, 4)), rng.normal(size=5)
    with pytest.raises(ft.FlattestError, match="depends on the rest of its batch"):
        ft.measure(lambda p, x: jnp.cumsum(x @ p["a"]), {"a": rng.normal(size=4)}, data)
