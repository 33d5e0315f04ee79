"""‖∇f_i‖² of an MLP as a function of θ that JAX differentiates, without J: n × m numbers a layer.

Where f_i depends on x_i alone, ∂f_i/∂W_l = δ_i z_iᵀ with z the inputs of layer l and δ = ∂f/∂h_l,
so that its square is ‖δ_i‖² ‖z_i‖²; ∂f_i/∂W_D = z_i. With Sim-BN, f = Σ_j c_j u_j, c = W2 ⊙ γ,
u = r/s, f_i depends on all points through s: with v_j = (1/n) Σ_k u_kj σ′_kj x′_k

    ∂f_i/∂(W1, b1)_j = (c_j/s_j) (σ′_ij x′_i − u_ij v_j),

and its square is a sum of three products. (`curvature.plain` and `curvature.normalized` have the
same in NumPy, for the Gram matrix and the trace itself.)
"""

import jax
import jax.numpy as jnp

from flattest.problem.models import MLP, Params


def squares(model: MLP, params: Params, x: jax.Array) -> jax.Array:
    """‖∇f_i‖² on the rows of the training inputs x."""
    each = _tied if model.normalization.by_neuron else _layered
    return each(model, params, x) + float(model.output_bias)


def _layered(model: MLP, params: Params, x: jax.Array) -> jax.Array:
    still = [jnp.zeros((len(x), model.width))] * (model.depth - 1)
    deltas, inputs = jax.grad(_moved, has_aux=True)(still, model, params, x)
    total = _square(inputs[-1])
    for delta, z in zip(deltas, inputs[:-1], strict=True):
        total += _square(delta) * _square(z)
    return total


def _moved(moves: list[jax.Array], model: MLP, params: Params, x: jax.Array):
    """Σ_i f_i where the pre-activations of every layer are moved, and the layers' inputs z. The
    derivative in the moves is δ, for f_i depends on x_i alone."""
    z, inputs = x, [_with_one(model, x)]
    for layer, move in enumerate(moves, start=1):
        h = z @ params[f"W{layer}"].T + move
        z = model.sigma.value(h + params["b1"] if model.bias and layer == 1 else h)
        if layer == 1:
            z = model.normalization.of(model, params, z, None)
        inputs.append(z)
    return (z @ params[f"W{model.depth}"]).sum(), inputs


def _tied(model: MLP, params: Params, x: jax.Array) -> jax.Array:
    inputs, r, slope = _with_one(model, x), *_first(model, params, x)
    mean = (r**2).mean(axis=0)
    dead = mean == 0
    s = jnp.where(dead, 1.0, jnp.sqrt(jnp.where(dead, 1.0, mean)))
    u, c = r / s, params["W2"] * params["gamma"] / s
    v = (u * slope).T @ inputs / len(x)
    along = slope * u * (inputs @ v.T)
    first = slope**2 * _square(inputs)[:, None] - 2 * along + u**2 * _square(v)
    return first @ c**2 + u**2 @ (params["W2"] ** 2 + params["gamma"] ** 2)


def _first(model: MLP, params: Params, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """σ and σ′ at the pre-activations of the first layer."""
    h = x @ params["W1"].T + (params["b1"] if model.bias else 0.0)
    return model.sigma.value(h), model.sigma.slope(h)


def _with_one(model: MLP, x: jax.Array) -> jax.Array:
    """x′: the inputs with a 1 where the first layer has a bias."""
    return jnp.column_stack([x, jnp.ones(len(x))]) if model.bias else x


def _square(rows: jax.Array) -> jax.Array:
    return (rows**2).sum(axis=1)
