"""flattest: are the flattest minima the ones that generalize, and does the algorithm find them?"""

import importlib
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

from flattest.activations import Activation, activation, register_activation  # noqa: E402
from flattest.algorithms import Phase, StepChange, gd, label_noise_sgd, sam, sgd  # noqa: E402
from flattest.bounds import (  # noqa: E402
    Bound,
    flatness_ratio,
    known_lower_bound,
    lower_bound,
    path_norm,
)
from flattest.certificate import Certificate  # noqa: E402
from flattest.constructions import (  # noqa: E402
    Certification,
    Construction,
    certify,
    circle_generalizer,
    head_generalizer,
    memorizer,
    memorizes,
    no_bias_xor,
    sim_bn_optimum,
    sim_ln_generalizer,
    sim_ln_memorizer,
    xor_generalizer,
)
from flattest.data import (  # noqa: E402
    Ball,
    Circle,
    CompleteXor,
    Dataset,
    Distribution,
    Estimate,
    Population,
    QuadraticForm,
    SingleIndex,
    SumOfSingleIndex,
    Univariate,
    Xor,
    ball,
    circle,
    complete_xor,
    meets_condition_1,
    population_mean,
    single_index,
    sum_of_single_index,
    univariate,
    xor,
)
from flattest.errors import FlattestError  # noqa: E402
from flattest.experiments import Experiment, Variant, experiment  # noqa: E402
from flattest.experiments.challenge import Challenge  # noqa: E402
from flattest.experiments.setup import Setup  # noqa: E402
from flattest.interpolators import (  # noqa: E402
    Interpolator,
    dual_bound,
    flattest_interpolator,
    flattest_interpolators,
)
from flattest.losses import MSE, HalfMSE, Logistic, loss, zero_one_error  # noqa: E402
from flattest.measure import Measurement, measure  # noqa: E402
from flattest.models import MLP, FunctionModel, Init, Model, predict  # noqa: E402
from flattest.multi_index import (  # noqa: E402
    bad_inner_weights,
    inner_weights,
    least_population_loss,
    population_loss,
    span_correlation,
)
from flattest.parameters import (  # noqa: E402
    Network,
    load_network,
    load_params,
    model_of,
    save_network,
)
from flattest.search import (  # noqa: E402
    SearchResult,
    bad_interpolator,
    interpolate,
    search_flattest,
)
from flattest.sharpness import (  # noqa: E402
    Eigenpairs,
    Measure,
    SpectralDensity,
    hutchinson,
    spectrum,
    top_eigenvalue,
    top_eigenvalues,
    trace,
    xtrace,
)
from flattest.stability import (  # noqa: E402
    FlattestImplementation,
    flattest_implementation,
    lemma4_bound,
    second_derivative,
    stable_variation,
    upper_top_eigenvalue,
    weighted_total_variation,
)
from flattest.store import Store, StoredRun  # noqa: E402
from flattest.symmetry import (  # noqa: E402
    Rescaling,
    flattest_rescaling,
    norm_exponent,
    orbit_weights,
    rescaled,
    sharpened,
)
from flattest.train import Log, Progress, Run, train, train_many  # noqa: E402

__all__ = [
    "MLP",
    "MSE",
    "Activation",
    "Ball",
    "Bound",
    "Certificate",
    "Certification",
    "Challenge",
    "Circle",
    "CompleteXor",
    "Construction",
    "Dataset",
    "Distribution",
    "Eigenpairs",
    "Estimate",
    "Experiment",
    "FlattestError",
    "FlattestImplementation",
    "FunctionModel",
    "HalfMSE",
    "Init",
    "Interpolator",
    "Log",
    "Logistic",
    "Measure",
    "Measurement",
    "Model",
    "Network",
    "Phase",
    "Population",
    "Progress",
    "QuadraticForm",
    "Rescaling",
    "Run",
    "SearchResult",
    "Setup",
    "SingleIndex",
    "SpectralDensity",
    "StepChange",
    "Store",
    "StoredRun",
    "SumOfSingleIndex",
    "Univariate",
    "Variant",
    "Xor",
    "activation",
    "bad_inner_weights",
    "bad_interpolator",
    "ball",
    "certify",
    "circle",
    "circle_generalizer",
    "complete_xor",
    "dual_bound",
    "experiment",
    "flatness_ratio",
    "flattest_implementation",
    "flattest_interpolator",
    "flattest_interpolators",
    "flattest_rescaling",
    "gd",
    "head_generalizer",
    "hutchinson",
    "inner_weights",
    "interpolate",
    "known_lower_bound",
    "label_noise_sgd",
    "least_population_loss",
    "lemma4_bound",
    "load_network",
    "load_params",
    "loss",
    "lower_bound",
    "measure",
    "meets_condition_1",
    "memorizer",
    "memorizes",
    "model_of",
    "no_bias_xor",
    "norm_exponent",
    "orbit_weights",
    "path_norm",
    "population_loss",
    "population_mean",
    "predict",
    "register_activation",
    "rescaled",
    "sam",
    "save_network",
    "search_flattest",
    "second_derivative",
    "sgd",
    "sharpened",
    "sim_bn_optimum",
    "sim_ln_generalizer",
    "sim_ln_memorizer",
    "single_index",
    "span_correlation",
    "spectrum",
    "stable_variation",
    "sum_of_single_index",
    "top_eigenvalue",
    "top_eigenvalues",
    "trace",
    "train",
    "train_many",
    "univariate",
    "upper_top_eigenvalue",
    "weighted_total_variation",
    "xor",
    "xor_generalizer",
    "xtrace",
    "zero_one_error",
]


def __getattr__(name: str) -> Any:
    """`flattest.torch` is imported when it is asked for: PyTorch is an extra."""
    if name == "torch":
        return importlib.import_module("flattest.torch")
    raise AttributeError(f"module 'flattest' has no attribute {name!r}")
