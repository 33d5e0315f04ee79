"""Appendix A.5: the logistic loss with label smoothing."""

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit

import flattest as ft
from flattest.evidence import Verdict, equal
from flattest.ledger.adversary import Family, Plan, universal
from flattest.ledger.claim import Verdicts, claim, misprint, worst
from flattest.papers.wen2023.claims.instances import (
    dense_trace,
    output_traces,
    small_interpolators,
    squared_gradients,
)

SMOOTHING = (0.05, 0.2, 0.4)


def printed_loss(a: float, b: int, p: float) -> float:
    """Definition A.2 as printed."""
    log1 = np.logaddexp(0, a)
    return -p * (b * a - log1) - (1 - p) * ((1 - b) * a - log1)


def _minimizer(loss) -> float:
    return float(minimize_scalar(loss, bounds=(-20, 20), options={"xatol": 1e-12}).x)


def _gamma(p: float) -> float:
    return np.log((1 - p) / p)


@claim(
    "wen2023/definition-a.2/as-printed",
    "The printed loss −p log(e^{ba}/(1+e^a)) − (1−p) log(e^{(1−b)a}/(1+e^a)) is least at "
    "a = (2b − 1)γ_p, γ_p = ln((1−p)/p).",
    source="Definition A.2",
    evidence="identity",
    reading="as printed",
)
def definition_a2_as_printed() -> Verdict:
    p = 0.2
    a = _minimizer(lambda a: printed_loss(a, 1, p))
    return equal(a, _gamma(p), 1e-6, "p and 1 − p are swapped: the minimizer has the wrong sign")


@claim(
    "wen2023/definition-a.2/corrected",
    "With p and 1 − p exchanged the loss is least at a = (2b − 1)γ_p.",
    source="Definition A.2",
    evidence="identity",
    reading="as corrected",
    of=worst,
)
def definition_a2_corrected(gamma_factor=1.0) -> Verdicts:
    for p in SMOOTHING:
        for b in (0, 1):
            a = _minimizer(lambda a, b=b, p=p: printed_loss(a, b, 1 - p))
            yield equal(a, gamma_factor * (2 * b - 1) * _gamma(p), 1e-6)


@universal(
    "wen2023/theorem-a.2",
    "The minimizers of the smoothed logistic loss are the interpolators of the targets ±γ_p: there "
    "each term is at its least value −p log p − (1−p) log(1−p), elsewhere above it.",
    source="Theorem A.2",
    refuted_by="an output and p with a smaller term",
    least=1.0,
    attained=True,
    evidence="proof",
    evaluations=400,
)
def theorem_a2(gamma_factor=1.0) -> Plan:
    """Proof: ℓ″ = e^f/(1 + e^f)² > 0, so that each term has one minimum, where ℓ′ = 0: at ±γ_p. The
    mean is least where all terms are, and only there."""
    for p in SMOOTHING:
        loss = ft.Logistic(p)
        y = np.array([-1.0, 1.0])
        target = gamma_factor * y * _gamma(p)
        least = -p * np.log(p) - (1 - p) * np.log(1 - p)
        yield equal(np.abs(loss.slope(target, y)).max(), 0.0, 1e-12, "ℓ′ at the target")
        yield equal(loss.value(target, y).max(), least, 1e-12, "ℓ at the target")

    def over_least(z: np.ndarray) -> float:
        p = 0.5 * float(expit(z[0]))
        if p < 1e-9:
            return float("nan")
        least = -p * np.log(p) - (1 - p) * np.log1p(-p)
        return float(ft.Logistic(p).value(z[1:], np.ones(1))[0]) / least

    yield Family("p < ½ and f", 2, over_least)


@misprint(
    "wen2023/lemma-a.13/",
    printed="At an interpolator of ±γ_p, Tr ∇²L = (1/(p(1−p))) (1/n) Σ‖∇f(x_i)‖².",
    corrected="At an interpolator of ±γ_p, Tr ∇²L = p(1−p) (1/n) Σ‖∇f(x_i)‖².",
    source="Lemma A.13",
    evidence="identity",
    of=worst,
)
def lemma_a13(as_printed: bool, factor=1.0) -> Verdicts:
    note = "six architectures × p = .05, .2, .4, by finite differences"
    for p in SMOOTHING:
        loss, spread = ft.Logistic(p), p * (1 - p)
        for model, params, data in small_interpolators(loss):
            squares = squared_gradients(model, params, data).mean()
            value = dense_trace(model, params, data, loss)
            yield equal(
                value, (1 / spread if as_printed else factor * spread) * squares, 1e-6, note
            )


@misprint(
    "wen2023/equation-19/",
    printed="The second sum of (19) has the terms ℓ″(f(x_i)) Tr ∇²f(x_i) ‖∇f(x_i)‖².",
    corrected="The second sum of (19) has the terms ℓ″(f(x_i)) ‖∇f(x_i)‖².",
    source="Equation (19)",
    evidence="identity",
)
def equation_19(as_printed: bool) -> Verdict:
    """The last terms of (19) for a softplus network, with or without the stray Tr ∇²f(x_i)."""
    loss = ft.Logistic()
    model, params, data = small_interpolators(loss)[-1]
    terms = squared_gradients(model, params, data)
    if as_printed:
        terms = terms * output_traces(model, params, data)
    curvature = loss.curvature(loss.target(data.y).astype(float), data.y)
    return equal(dense_trace(model, params, data, loss), np.mean(curvature * terms), 1e-6)


@claim(
    "wen2023/appendix-a.5/same-flattest",
    "The flattest minimizers of both losses are the same: at every interpolator of ±γ_p, "
    "Tr ∇²L^log = (p(1−p)/2) Tr ∇²L^mse, a factor that does not depend on θ.",
    source="Appendix A.5, last sentence",
    evidence="identity",
)
def same_flattest(half=0.5) -> Verdict:
    """Both are sums over ‖∇f(x_i)‖², by Lemmas 4.1 and A.13, and by Theorem A.2 both losses have
    the same minimizers. L^mse is that of the targets ±γ_p, not of the labels ±1."""
    p, note = 0.2, "six architectures, p = .2, second differences of both losses"

    def verdict(model, params, data) -> Verdict:
        mse = dense_trace(model, params, ft.Dataset(data.x, _gamma(p) * data.y))
        logistic = dense_trace(model, params, data, ft.Logistic(p))
        return equal(logistic, half * p * (1 - p) * mse, 1e-6, note)

    return worst(verdict(*case) for case in small_interpolators(ft.Logistic(p)))
