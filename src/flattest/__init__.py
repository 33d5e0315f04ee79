"""flattest: are the flattest minima the ones that generalize, and does the algorithm find them?"""

import jax

jax.config.update("jax_enable_x64", True)

from flattest.activations import Activation, activation, register_activation  # noqa: E402
from flattest.algorithms import Phase, StepChange, gd, label_noise_sgd, sam, sgd  # noqa: E402
from flattest.bounds import (  # noqa: E402
    Bound,
    known_lower_bound,
    lower_bound,
    path_norm,
)
from flattest.certificate import Certificate  # noqa: E402
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
from flattest.interpolators import (  # noqa: E402
    Interpolator,
    dual_bound,
    flattest_interpolator,
    flattest_interpolators,
)
from flattest.losses import MSE, HalfMSE, Logistic, loss, zero_one_error  # noqa: E402
from flattest.models import MLP, FunctionModel, Init, Model, predict  # noqa: E402
from flattest.multi_index import (  # noqa: E402
    bad_inner_weights,
    inner_weights,
    least_population_loss,
    population_loss,
    span_correlation,
)
from flattest.search import (  # noqa: E402
    SearchResult,
    bad_interpolator,
    interpolate,
    search_flattest,
)
from flattest.sharpness import Measure, trace  # noqa: E402
from flattest.stability import (  # noqa: E402
    FlattestImplementation,
    flattest_implementation,
    lemma4_bound,
    second_derivative,
    stable_variation,
    upper_top_eigenvalue,
    weighted_total_variation,
)
from flattest.symmetry import (  # noqa: E402
    Rescaling,
    flattest_rescaling,
    orbit_weights,
    rescaled,
    sharpened,
)

__all__ = [
    "MLP",
    "MSE",
    "Activation",
    "Ball",
    "Bound",
    "Certificate",
    "Circle",
    "CompleteXor",
    "Dataset",
    "Distribution",
    "Estimate",
    "FlattestError",
    "FlattestImplementation",
    "FunctionModel",
    "HalfMSE",
    "Init",
    "Interpolator",
    "Logistic",
    "Measure",
    "Model",
    "Phase",
    "Population",
    "QuadraticForm",
    "Rescaling",
    "SearchResult",
    "SingleIndex",
    "StepChange",
    "SumOfSingleIndex",
    "Univariate",
    "Xor",
    "activation",
    "bad_inner_weights",
    "bad_interpolator",
    "ball",
    "circle",
    "complete_xor",
    "dual_bound",
    "flattest_implementation",
    "flattest_interpolator",
    "flattest_interpolators",
    "flattest_rescaling",
    "gd",
    "inner_weights",
    "interpolate",
    "known_lower_bound",
    "label_noise_sgd",
    "least_population_loss",
    "lemma4_bound",
    "loss",
    "lower_bound",
    "meets_condition_1",
    "orbit_weights",
    "path_norm",
    "population_loss",
    "population_mean",
    "predict",
    "register_activation",
    "rescaled",
    "sam",
    "search_flattest",
    "second_derivative",
    "sgd",
    "sharpened",
    "single_index",
    "span_correlation",
    "stable_variation",
    "sum_of_single_index",
    "trace",
    "univariate",
    "upper_top_eigenvalue",
    "weighted_total_variation",
    "xor",
    "zero_one_error",
]
