"""Slow, dense, float64 and obviously right: what the fast code is compared with."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import flattest as ft


def empirical_loss(model, params, data, loss="mse"):
    """L(θ) = (1/n) Σ ℓ(f_θ(x_i), y_i), as a JAX scalar."""
    x, y = jnp.asarray(data.x), jnp.asarray(data.y)
    return jnp.mean(ft.loss(loss).value(model.apply(params, x, x), y))


def flat(params):
    """θ as one vector (names in alphabetical order), and the way back."""
    vector, unravel = ravel_pytree({k: jnp.asarray(v, jnp.float64) for k, v in params.items()})
    return vector, unravel


def _once(function, theta) -> np.ndarray:
    """function(θ), compiled hastily: it runs once, and dispatching its operations is slower."""
    hasty = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    return np.asarray(jax.jit(function, compiler_options=hasty)(theta))


def dense_hessian(model, params, data, loss="mse") -> np.ndarray:
    """∇²L by forward-over-reverse autodiff, in the order of `flat`."""
    theta, unravel = flat(params)
    return _once(jax.hessian(lambda v: empirical_loss(model, unravel(v), data, loss)), theta)


def dense_gradient(model, params, data, loss="mse") -> np.ndarray:
    """∇L, in the order of `flat`."""
    theta, unravel = flat(params)
    return _once(jax.grad(lambda v: empirical_loss(model, unravel(v), data, loss)), theta)


def dense_jacobian(model, params, data) -> np.ndarray:
    """∂f(x_i)/∂θ, (n, p), in the order of `flat`."""
    theta, unravel = flat(params)
    x = jnp.asarray(data.x)
    return _once(jax.jacrev(lambda v: model.apply(unravel(v), x, x)), theta)


def trace_by_parameter(hessian, params) -> dict[str, float]:
    """Tr of each parameter's diagonal block of a dense Hessian."""
    _, unravel = flat(params)
    return {k: float(v.sum()) for k, v in unravel(jnp.diag(jnp.asarray(hessian))).items()}


def interpolate(model, params, data, loss="mse") -> dict[str, np.ndarray]:
    """θ with the last layer refitted so that f(x_i) is the loss's minimizer at every point."""
    last = f"W{model.depth}"
    exact = {k: np.asarray(v, np.float64) for k, v in params.items()}

    def outputs(w):
        return np.asarray(model.apply(exact | {last: w}, data.x, data.x))

    # f is affine in the last layer: outputs(w) = outputs(0) + Φ w.
    offset = outputs(np.zeros(model.width))
    phi = np.stack([outputs(e) for e in np.eye(model.width)], axis=1) - offset[:, None]
    target = np.asarray(ft.loss(loss).target(data.y), float)
    w, *_ = np.linalg.lstsq(phi, target - offset, rcond=None)
    return exact | {last: w}
