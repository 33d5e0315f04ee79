"""The public names and where they live: type checkers read this, and `__init__.py` too."""

__version__: str

from flattest import torch as torch
from flattest.curvature.result import (
    Eigenpairs as Eigenpairs,
    Quantity as Quantity,
)
from flattest.curvature.sharpness import (
    hutchinson as hutchinson,
    spectrum as spectrum,
    top_eigenvalue as top_eigenvalue,
    top_eigenvalues as top_eigenvalues,
    trace as trace,
    xtrace as xtrace,
)
from flattest.curvature.spectrum import (
    SpectralDensity as SpectralDensity,
)
from flattest.errors import (
    FlattestError as FlattestError,
)
from flattest.evidence import (
    Attack as Attack,
    Verdict as Verdict,
)
from flattest.experiments.experiment import (
    Experiment as Experiment,
    Variant as Variant,
)
from flattest.experiments.registry import (
    experiment as experiment,
)
from flattest.flatness.bounds import (
    Bound as Bound,
    known_lower_bound as known_lower_bound,
    lower_bound as lower_bound,
    path_norm as path_norm,
)
from flattest.flatness.certification import (
    Certification as Certification,
    certify as certify,
    flatness_ratio as flatness_ratio,
    memorizes as memorizes,
)
from flattest.flatness.constructions import (
    Construction as Construction,
    memorizer as memorizer,
    sim_ln_memorizer as sim_ln_memorizer,
)
from flattest.flatness.convex.faces import (
    Decision as Decision,
    decide_faces as decide_faces,
)
from flattest.flatness.convex.network import (
    FlattestNetwork as FlattestNetwork,
    flattest_network as flattest_network,
)
from flattest.flatness.convex.range import (
    Range as Range,
    flattest_range as flattest_range,
)
from flattest.flatness.interpolators import (
    Interpolator as Interpolator,
    dual_bound as dual_bound,
    flattest_interpolator as flattest_interpolator,
    flattest_interpolators as flattest_interpolators,
)
from flattest.flatness.league import (
    MEASURES as MEASURES,
    League as League,
    Measure as Measure,
    league as league,
)
from flattest.flatness.league_measures import (
    LeagueSettings as LeagueSettings,
)
from flattest.flatness.measure import (
    measure as measure,
)
from flattest.flatness.measurement import (
    Measurement as Measurement,
)
from flattest.flatness.search import (
    SearchResult as SearchResult,
    bad_interpolator as bad_interpolator,
    interpolate as interpolate,
    search_flattest as search_flattest,
)
from flattest.flatness.spikes import (
    sim_bn_spike as sim_bn_spike,
)
from flattest.flatness.watch import (
    CsvLog as CsvLog,
    TensorBoardLog as TensorBoardLog,
    WandbLog as WandbLog,
    Watch as Watch,
)
from flattest.flatness.words import (
    explain as explain,
)
from flattest.lab.challenge import (
    Challenge as Challenge,
)
from flattest.lab.scenario import (
    Answer as Answer,
    judge as judge,
)
from flattest.lab.setup import (
    Setup as Setup,
)
from flattest.lab.sweep import (
    Diagram as Diagram,
    sweep as sweep,
)
from flattest.papers.vardhan2026.constructions import (
    bad_memorizer as bad_memorizer,
    bad_twin as bad_twin,
)
from flattest.papers.wen2023.constructions import (
    circle_generalizer as circle_generalizer,
    head_generalizer as head_generalizer,
    no_bias_xor as no_bias_xor,
    sim_bn_optimum as sim_bn_optimum,
    sim_ln_generalizer as sim_ln_generalizer,
    xor_generalizer as xor_generalizer,
)
from flattest.problem.activations import (
    Activation as Activation,
    activation as activation,
    register_activation as register_activation,
)
from flattest.problem.data import (
    Dataset as Dataset,
    Distribution as Distribution,
    Estimate as Estimate,
    Examples as Examples,
    HeldOut as HeldOut,
    OwnLaw as OwnLaw,
    Population as Population,
    population_mean as population_mean,
)
from flattest.problem.distributions import (
    Ball as Ball,
    Circle as Circle,
    CompleteXor as CompleteXor,
    Digits as Digits,
    GaussianMixture as GaussianMixture,
    Parity as Parity,
    QuadraticForm as QuadraticForm,
    SingleIndex as SingleIndex,
    SumOfSingleIndex as SumOfSingleIndex,
    TwoMoons as TwoMoons,
    Univariate as Univariate,
    Xor as Xor,
    ball as ball,
    circle as circle,
    complete_xor as complete_xor,
    meets_condition_1 as meets_condition_1,
    single_index as single_index,
    sum_of_single_index as sum_of_single_index,
    univariate as univariate,
    xor as xor,
)
from flattest.problem.libraries import (
    equinox as equinox,
    flax as flax,
    pytorch as pytorch,
)
from flattest.problem.losses import (
    MSE as MSE,
    CrossEntropy as CrossEntropy,
    HalfMSE as HalfMSE,
    Logistic as Logistic,
    loss as loss,
    zero_one_error as zero_one_error,
)
from flattest.problem.models import (
    MLP as MLP,
    DeepMLP as DeepMLP,
    FunctionModel as FunctionModel,
    Init as Init,
    Model as Model,
    OwnModel as OwnModel,
    predict as predict,
)
from flattest.problem.multi_index import (
    bad_inner_weights as bad_inner_weights,
    inner_weights as inner_weights,
    least_population_loss as least_population_loss,
    population_loss as population_loss,
    span_correlation as span_correlation,
)
from flattest.problem.networks import (
    Network as Network,
    load_network as load_network,
    load_params as load_params,
    model_of as model_of,
    save_network as save_network,
)
from flattest.rescaling.orbit import (
    flattest_rescaling as flattest_rescaling,
)
from flattest.rescaling.top_eigenvalue import (
    FlattestImplementation as FlattestImplementation,
    flattest_implementation as flattest_implementation,
)
from flattest.rescaling.two_layer import (
    Rescaling as Rescaling,
    norm_exponent as norm_exponent,
    orbit_weights as orbit_weights,
    rescaled as rescaled,
    sharpened as sharpened,
)
from flattest.runs.store import (
    Store as Store,
    StoredRun as StoredRun,
)
from flattest.runs.watched import (
    StoreLog as StoreLog,
)
from flattest.stability.functions import (
    second_derivative as second_derivative,
)
from flattest.stability.modes import (
    stable_variation as stable_variation,
    upper_top_eigenvalue as upper_top_eigenvalue,
)
from flattest.stability.weights import (
    lemma4_bound as lemma4_bound,
    weighted_total_variation as weighted_total_variation,
)
from flattest.training.algorithms import (
    Phase as Phase,
    StepChange as StepChange,
    adam as adam,
    adamw as adamw,
    asam as asam,
    gd as gd,
    gsam as gsam,
    label_noise_sgd as label_noise_sgd,
    momentum as momentum,
    optax as optax,
    own_step as own_step,
    sam as sam,
    sgd as sgd,
    torch_optimizer as torch_optimizer,
)
from flattest.training.flows import (
    Flow as Flow,
    flow as flow,
)
from flattest.training.log import (
    Log as Log,
)
from flattest.training.optimizers import (
    Adam as Adam,
    AdamW as AdamW,
    Cosine as Cosine,
    Momentum as Momentum,
    Optax as Optax,
    Step as Step,
    Steps as Steps,
    TorchOptimizer as TorchOptimizer,
)
from flattest.training.run import (
    Progress as Progress,
    Run as Run,
)
from flattest.training.train import (
    train as train,
)
