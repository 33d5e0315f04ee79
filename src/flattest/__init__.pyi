"""The public names and where they live: type checkers read this, and `__init__.py` too."""

from flattest import torch as torch
from flattest.curvature.result import (
    Eigenpairs as Eigenpairs,
)
from flattest.curvature.result import (
    Quantity as Quantity,
)
from flattest.curvature.sharpness import (
    hutchinson as hutchinson,
)
from flattest.curvature.sharpness import (
    spectrum as spectrum,
)
from flattest.curvature.sharpness import (
    top_eigenvalue as top_eigenvalue,
)
from flattest.curvature.sharpness import (
    top_eigenvalues as top_eigenvalues,
)
from flattest.curvature.sharpness import (
    trace as trace,
)
from flattest.curvature.sharpness import (
    xtrace as xtrace,
)
from flattest.curvature.spectrum import (
    SpectralDensity as SpectralDensity,
)
from flattest.errors import (
    FlattestError as FlattestError,
)
from flattest.evidence import (
    Verdict as Verdict,
)
from flattest.experiments.experiment import (
    Experiment as Experiment,
)
from flattest.experiments.experiment import (
    Variant as Variant,
)
from flattest.experiments.registry import (
    experiment as experiment,
)
from flattest.flatness.bounds import (
    Bound as Bound,
)
from flattest.flatness.bounds import (
    known_lower_bound as known_lower_bound,
)
from flattest.flatness.bounds import (
    lower_bound as lower_bound,
)
from flattest.flatness.bounds import (
    path_norm as path_norm,
)
from flattest.flatness.certification import (
    Certification as Certification,
)
from flattest.flatness.certification import (
    certify as certify,
)
from flattest.flatness.certification import (
    flatness_ratio as flatness_ratio,
)
from flattest.flatness.certification import (
    memorizes as memorizes,
)
from flattest.flatness.interpolators import (
    Interpolator as Interpolator,
)
from flattest.flatness.interpolators import (
    dual_bound as dual_bound,
)
from flattest.flatness.interpolators import (
    flattest_interpolator as flattest_interpolator,
)
from flattest.flatness.interpolators import (
    flattest_interpolators as flattest_interpolators,
)
from flattest.flatness.measure import (
    measure as measure,
)
from flattest.flatness.measurement import (
    Measurement as Measurement,
)
from flattest.flatness.search import (
    SearchResult as SearchResult,
)
from flattest.flatness.search import (
    bad_interpolator as bad_interpolator,
)
from flattest.flatness.search import (
    interpolate as interpolate,
)
from flattest.flatness.search import (
    search_flattest as search_flattest,
)
from flattest.lab.challenge import (
    Challenge as Challenge,
)
from flattest.lab.setup import (
    Setup as Setup,
)
from flattest.papers.wen2023.constructions import (
    Construction as Construction,
)
from flattest.papers.wen2023.constructions import (
    circle_generalizer as circle_generalizer,
)
from flattest.papers.wen2023.constructions import (
    head_generalizer as head_generalizer,
)
from flattest.papers.wen2023.constructions import (
    memorizer as memorizer,
)
from flattest.papers.wen2023.constructions import (
    no_bias_xor as no_bias_xor,
)
from flattest.papers.wen2023.constructions import (
    sim_bn_optimum as sim_bn_optimum,
)
from flattest.papers.wen2023.constructions import (
    sim_ln_generalizer as sim_ln_generalizer,
)
from flattest.papers.wen2023.constructions import (
    sim_ln_memorizer as sim_ln_memorizer,
)
from flattest.papers.wen2023.constructions import (
    xor_generalizer as xor_generalizer,
)
from flattest.problem.activations import (
    Activation as Activation,
)
from flattest.problem.activations import (
    activation as activation,
)
from flattest.problem.activations import (
    register_activation as register_activation,
)
from flattest.problem.data import (
    Ball as Ball,
)
from flattest.problem.data import (
    Circle as Circle,
)
from flattest.problem.data import (
    CompleteXor as CompleteXor,
)
from flattest.problem.data import (
    Dataset as Dataset,
)
from flattest.problem.data import (
    Distribution as Distribution,
)
from flattest.problem.data import (
    Estimate as Estimate,
)
from flattest.problem.data import (
    Population as Population,
)
from flattest.problem.data import (
    QuadraticForm as QuadraticForm,
)
from flattest.problem.data import (
    SingleIndex as SingleIndex,
)
from flattest.problem.data import (
    SumOfSingleIndex as SumOfSingleIndex,
)
from flattest.problem.data import (
    Univariate as Univariate,
)
from flattest.problem.data import (
    Xor as Xor,
)
from flattest.problem.data import (
    ball as ball,
)
from flattest.problem.data import (
    circle as circle,
)
from flattest.problem.data import (
    complete_xor as complete_xor,
)
from flattest.problem.data import (
    meets_condition_1 as meets_condition_1,
)
from flattest.problem.data import (
    population_mean as population_mean,
)
from flattest.problem.data import (
    single_index as single_index,
)
from flattest.problem.data import (
    sum_of_single_index as sum_of_single_index,
)
from flattest.problem.data import (
    univariate as univariate,
)
from flattest.problem.data import (
    xor as xor,
)
from flattest.problem.losses import (
    MSE as MSE,
)
from flattest.problem.losses import (
    HalfMSE as HalfMSE,
)
from flattest.problem.losses import (
    Logistic as Logistic,
)
from flattest.problem.losses import (
    loss as loss,
)
from flattest.problem.losses import (
    zero_one_error as zero_one_error,
)
from flattest.problem.models import (
    MLP as MLP,
)
from flattest.problem.models import (
    FunctionModel as FunctionModel,
)
from flattest.problem.models import (
    Init as Init,
)
from flattest.problem.models import (
    Model as Model,
)
from flattest.problem.models import (
    predict as predict,
)
from flattest.problem.multi_index import (
    bad_inner_weights as bad_inner_weights,
)
from flattest.problem.multi_index import (
    inner_weights as inner_weights,
)
from flattest.problem.multi_index import (
    least_population_loss as least_population_loss,
)
from flattest.problem.multi_index import (
    population_loss as population_loss,
)
from flattest.problem.multi_index import (
    span_correlation as span_correlation,
)
from flattest.problem.networks import (
    Network as Network,
)
from flattest.problem.networks import (
    load_network as load_network,
)
from flattest.problem.networks import (
    load_params as load_params,
)
from flattest.problem.networks import (
    model_of as model_of,
)
from flattest.problem.networks import (
    save_network as save_network,
)
from flattest.rescaling.orbit import (
    flattest_rescaling as flattest_rescaling,
)
from flattest.rescaling.top_eigenvalue import (
    FlattestImplementation as FlattestImplementation,
)
from flattest.rescaling.top_eigenvalue import (
    flattest_implementation as flattest_implementation,
)
from flattest.rescaling.two_layer import (
    Rescaling as Rescaling,
)
from flattest.rescaling.two_layer import (
    norm_exponent as norm_exponent,
)
from flattest.rescaling.two_layer import (
    orbit_weights as orbit_weights,
)
from flattest.rescaling.two_layer import (
    rescaled as rescaled,
)
from flattest.rescaling.two_layer import (
    sharpened as sharpened,
)
from flattest.runs.store import (
    Store as Store,
)
from flattest.runs.store import (
    StoredRun as StoredRun,
)
from flattest.stability.functions import (
    second_derivative as second_derivative,
)
from flattest.stability.modes import (
    stable_variation as stable_variation,
)
from flattest.stability.modes import (
    upper_top_eigenvalue as upper_top_eigenvalue,
)
from flattest.stability.weights import (
    lemma4_bound as lemma4_bound,
)
from flattest.stability.weights import (
    weighted_total_variation as weighted_total_variation,
)
from flattest.training.algorithms import (
    Phase as Phase,
)
from flattest.training.algorithms import (
    StepChange as StepChange,
)
from flattest.training.algorithms import (
    gd as gd,
)
from flattest.training.algorithms import (
    label_noise_sgd as label_noise_sgd,
)
from flattest.training.algorithms import (
    sam as sam,
)
from flattest.training.algorithms import (
    sgd as sgd,
)
from flattest.training.log import (
    Log as Log,
)
from flattest.training.run import (
    Progress as Progress,
)
from flattest.training.run import (
    Run as Run,
)
from flattest.training.train import (
    train as train,
)
