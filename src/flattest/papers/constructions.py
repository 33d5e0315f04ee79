"""Explicit networks from proofs, each with the certificate of what it attains; and `certify`, which
measures parameters from anywhere against the same bounds."""

from collections.abc import Callable

from flattest.errors import unknown
from flattest.flatness.certification import (
    Certification,
    certify,
    hidden_layers,
    interpolation_error,
    memorizes,
    population_error,
    population_mse,
)
from flattest.flatness.extreme import Separation, is_extreme, separate
from flattest.papers.wen2023.constructions import (
    Construction,
    circle_generalizer,
    head_generalizer,
    memorizer,
    no_bias_xor,
    sim_bn_optimum,
    sim_ln_generalizer,
    sim_ln_memorizer,
    xor_generalizer,
)

CONSTRUCTIONS: dict[str, Callable[..., Construction]] = {
    build.__name__.replace("_", "-"): build
    for build in (
        memorizer,
        xor_generalizer,
        head_generalizer,
        circle_generalizer,
        sim_ln_memorizer,
        sim_ln_generalizer,
        sim_bn_optimum,
        no_bias_xor,
    )
}


def construction(name: str) -> Callable[..., Construction]:
    """The construction called `name`, as in `flattest construct NAME`."""
    if name not in CONSTRUCTIONS:
        raise unknown("construction", name, CONSTRUCTIONS)
    return CONSTRUCTIONS[name]


__all__ = [
    "CONSTRUCTIONS",
    "Certification",
    "Construction",
    "Separation",
    "certify",
    "circle_generalizer",
    "construction",
    "head_generalizer",
    "hidden_layers",
    "interpolation_error",
    "is_extreme",
    "memorizer",
    "memorizes",
    "no_bias_xor",
    "population_error",
    "population_mse",
    "separate",
    "sim_bn_optimum",
    "sim_ln_generalizer",
    "sim_ln_memorizer",
    "xor_generalizer",
]
