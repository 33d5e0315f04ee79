"""What is computed for question 2 beside training: distances to flows, ways on, what decides."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import numpy as np

import flattest as ft
from flattest.errors import require_known
from flattest.experiments.experiment import Computed
from flattest.problem.models import Params
from flattest.problem.randomness import generator

replace = msgspec.structs.replace


def onwards(time: float, n: int) -> dict[str, ft.Phase | ft.Flow]:
    """The ways on from an interpolator of n points, each for the same time of the flow: a step of
    SAM takes ηρ²/2, one of label noise η²σ²/2."""
    sam, noise = (round(time / (n * each)) for each in (1.25e-5, 2e-6))
    return {
        "flow-unseen": ft.flow(time),
        "flow-seen": ft.flow(time, kinks="seen"),
        "flow-walls": ft.flow(time, kinks="walls"),
        "sam": ft.sam(0.01, 0.05, epochs=sam),
        "sam-kept": ft.sam(0.01, 0.05, epochs=sam, pattern="kept"),
        "m-sam": ft.sam(0.02, 0.1, batch=None, micro_batch=1, epochs=round(time / 1e-4)),
        "label-noise": ft.label_noise_sgd(0.01, 0.2, epochs=noise),
    }


def served(model: ft.MLP, params: Params, data: ft.Dataset) -> float:
    """How many training points a neuron is on at, on average over its share in the outputs,
    |a_j| ‖σ(h_j)‖: n/4 for the four neurons of xor, 1 for a memorizer. Two layers, no norm."""
    h = data.x @ np.asarray(params["W1"]).T + params.get("b1", 0.0)
    on, r = h > 0, np.asarray(model.sigma.value(h))
    share = np.abs(params["W2"]) * np.linalg.norm(r, axis=0)
    return float(share @ on.sum(axis=0) / share.sum())


class FullBatch(Computed, frozen=True, tag="question2/full-batch"):
    """Full-batch SAM with η = 0.4 ρ: distances, relative to how far each goes, to the flow of λ_max
    and to that of the trace after the same time, with Newton's method at the end of all three."""

    activation: str = "softplus"
    d: int = 8
    n: int = 8
    width: int = 20
    time: float = 0.05
    residual: float = 1e-3
    radii: tuple[float, ...] = (0.1, 0.05, 0.025, 0.0125)

    def compute(self, seed: int) -> Mapping[str, Any]:
        from flattest.studies.question2 import convergence

        model = ft.MLP(self.width, bias=True, activation=self.activation)
        data = ft.Xor(self.d, distinct=True).draw(self.n, seed)
        begin = convergence.start(model, data, seed, self.residual)
        top = convergence.along_top(begin, self.time)
        trace = convergence.along(begin, ft.flow(self.time, epochs=1, tolerance=1e-8))
        ends = [convergence.interpolating(begin, self._end(begin, rho)) for rho in self.radii]
        return {
            "radius": np.array(self.radii),
            "to the flow of λ_max": [convergence.apart(begin, end, top) for end in ends],
            "to the flow of the trace": [convergence.apart(begin, end, trace) for end in ends],
        }

    def _end(self, begin: Any, rho: float) -> np.ndarray:
        from flattest.studies.question2 import convergence

        epochs = round(self.time / (0.2 * rho**3))
        return convergence.trained(begin, ft.sam(0.4 * rho, rho, batch=None, epochs=epochs))

    def columns(self, series: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        """The distances at the least radius, and the exponents in it."""
        return distances(series)


def distances(series: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Of distances by `radius`: those at the least radius, and their exponents in it."""
    log = np.log(series["radius"])
    names = [name for name in series if name.partition(" to ")[1] or name.startswith("to ")]
    last = {name: float(series[name][-1]) for name in names}
    return last | {
        f"{name}, exponent": float(np.polyfit(log, np.log(series[name]), 1)[0]) for name in names
    }


class Walls(Computed, frozen=True, tag="question2/walls"):
    """Which flow of a ReLU network: all for the same time, from one network off the interpolators
    by `residual` · max |y|, distances relative to how far the flow with walls goes.

    To the flow with walls: the one that sees kinks, smoothed over the widths δ, and the one that
    sees none. To the flows with walls and without: 1-SAM as it is and with its pattern kept
    (η = ρ/10), and label noise σ = 0.1 with the rates ρ/5, at shrinking ρ.
    """

    d: int = 8
    n: int = 8
    width: int = 20
    time: float = 0.2
    residual: float = 1e-3
    widths: tuple[float, ...] = (0.03, 0.01, 0.003, 0.001, 0.0003)
    radii: tuple[float, ...] = (0.1, 0.05, 0.025, 0.0125)

    def compute(self, seed: int) -> Mapping[str, Any]:
        from flattest.studies.question2 import convergence

        data = ft.Xor(self.d, distinct=True).draw(self.n, seed)
        begin = convergence.start(ft.MLP(self.width, bias=True), data, seed, self.residual)
        walls = convergence.along(begin, ft.flow(self.time, epochs=1, kinks="walls"))
        unseen = convergence.along(begin, ft.flow(self.time, epochs=1, tolerance=3e-5))
        seen = [convergence.along(begin, self._smoothed(width)) for width in self.widths]
        series: dict[str, Any] = {
            "δ": np.array(self.widths),
            "seen to walls": [convergence.apart(begin, end, walls) for end in seen],
            "radius": np.array(self.radii),
            "unseen to walls": [convergence.apart(begin, unseen, walls)],
        }
        for way in self._phases(self.radii[0]):
            ends = [convergence.trained(begin, self._phases(rho)[way]) for rho in self.radii]
            for name, flow in (("walls", walls), ("unseen", unseen)):
                series[f"{way} to {name}"] = [convergence.apart(begin, e, flow) for e in ends]
        return series

    def _smoothed(self, width: float) -> ft.Flow:
        tolerance = min(1e-4, 1e-3 * width)
        return ft.flow(self.time, epochs=1, kinks="seen", width=width, tolerance=tolerance)

    def _phases(self, rho: float) -> dict[str, ft.Phase]:
        sam = ft.sam(rho / 10, rho, epochs=round(self.time / (rho**3 / 20 * self.n)))
        steps = self.time / ((rho / 5) ** 2 * 0.005)
        noise = ft.label_noise_sgd(rho / 5, 0.1, epochs=round(steps / self.n))
        return {"1-SAM": sam, "1-SAM kept": replace(sam, pattern="kept"), "label noise": noise}

    def columns(self, series: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        found = {
            f"seen to walls, δ = {width:g}": float(at)
            for width, at in zip(series["δ"], series["seen to walls"], strict=True)
        }
        found["unseen to walls"] = float(series["unseen to walls"][0])
        ways = {name: v for name, v in series.items() if len(v) == len(series["radius"])}
        return found | distances({name: v for name, v in ways.items() if name != "seen to walls"})


class Ways(Computed, frozen=True, tag="question2/ways"):
    """Test error and trace of the ways on from one interpolator, that of gradient descent at
    L = 10⁻⁶, after the same time. The ways are names of `onwards`. Flows need `distinct` points."""

    model: ft.MLP
    d: int = 10
    n: int = 40
    time: float = 1.0
    ways: tuple[str, ...] = ("flow-unseen", "flow-seen", "sam", "sam-kept", "m-sam", "label-noise")
    distinct: bool = False

    def compute(self, seed: int) -> Mapping[str, Any]:
        data = ft.Xor(self.d, distinct=self.distinct).draw(self.n, seed)
        log = ft.Log(points=1)
        phase = ft.gd(0.02, epochs=50_000, stop_loss=1e-6)
        start = ft.train(self.model, data, phase, seed=seed, dtype="float64", log=log)
        series = _ended("start", start)
        for way in self.ways:
            on = onwards(self.time, self.n)[require_known("way", way, onwards(1.0, 1))]
            run = ft.train(
                *(self.model, data, on),
                seed=seed,
                dtype="float64",
                params=dict(start.params or {}),
                log=log,
            )
            series |= _ended(way, run)
        return series

    def columns(self, series: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        return {name: float(values[0]) for name, values in series.items()}


def _ended(way: str, run: ft.Run) -> dict[str, Any]:
    return {f"{way}, test error": run["test_error"][-1:], f"{way}, trace": run["sharpness"][-1:]}


Start = Literal["initialization", "descent", "memorizer", "generalizer"]


class Decided(Computed, frozen=True, tag="question2/decided"):
    """One way from one start, two layers with bias on xor data: where it ends, and when.

    start: the initialization; or gradient descent to L = 10⁻⁶ from there ("descent"), from Theorem
    4.1's memorizer, or from the four neurons of Equation (5), filled up with neurons at 0 and every
    weight moved by N(0, `jitter`²).
    """

    phases: tuple[ft.Phase | ft.Flow, ...]
    model: ft.MLP = ft.MLP(500, bias=True)  # noqa: RUF009 (frozen)
    d: int = 30
    n: int = 100
    start: Start = "initialization"
    jitter: float = 0.05

    def compute(self, seed: int) -> Mapping[str, Any]:
        data = ft.Xor(self.d, distinct=True).draw(self.n, seed)
        params = self.beginning(data, seed)
        log = ft.Log(points=30, measures=("training", "sharpness", "test"))
        run = ft.train(
            *(self.model, data, self.phases),
            seed=seed,
            params=params,
            dtype="float64",
            log=log,
        )
        counts = [served(self.model, each, data) for each in (params, dict(run.params or {}))]
        names = ("epoch", "sharpness", "bound", "test_error")
        series = {name: run[name].copy() for name in names}
        if run.status == "diverged":
            series["test_error"][-1] = series["sharpness"][-1] = np.nan
        return series | {"served": np.array(counts)}

    def beginning(self, data: ft.Dataset, seed: int) -> Params:
        if self.start == "initialization":
            return self.model.init(data.d, seed)
        phase, log = ft.gd(0.01, epochs=20_000, stop_loss=1e-6), ft.Log(points=1)
        before = self._constructed(data, seed)
        run = ft.train(self.model, data, phase, seed=seed, params=before, dtype="float64", log=log)
        return dict(run.params or {})

    def _constructed(self, data: ft.Dataset, seed: int) -> Params:
        if self.start == "descent":
            return self.model.init(data.d, seed)
        made = ft.memorizer if self.start == "memorizer" else ft.xor_generalizer
        rng, params = generator(seed, "question2/jitter"), {}
        for name, shape in self.model.shapes(data.d).items():
            noise = self.jitter * rng.normal(size=shape)
            value = np.asarray(made(data).params[name])
            noise[: len(value)] += value
            params[name] = noise
        return params

    def columns(self, series: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        """`decided`: the epoch from which on the test error is within 0.05 of its last value."""
        error = series["test_error"]
        off = np.flatnonzero(np.abs(error - error[-1]) > 0.05)
        first = min(off[-1] + 1, len(error) - 1) if len(off) else 0
        return {
            "test error at the start": float(error[0]),
            "test error": float(error[-1]),
            "trace over the least": float(series["sharpness"][-1] / series["bound"][-1]),
            "points per neuron": float(series["served"][1]),
            "decided at epoch": float(series["epoch"][first]),
        }


class Diagram(Computed, frozen=True, tag="question2/diagram"):
    """Test errors over n × d of one way on from gradient descent's interpolator."""

    way: str
    model: ft.MLP = ft.MLP(60, bias=True)  # noqa: RUF009 (frozen)
    dimensions: tuple[int, ...] = (8, 12, 16, 20)
    sizes: tuple[int, ...] = (24, 40, 56, 72)
    time: float = 1.0

    def compute(self, seed: int) -> Mapping[str, Any]:
        return {
            _cell("d", d, "n", n): self._error(d, n, seed)
            for d in self.dimensions
            for n in self.sizes
        }

    def _error(self, d: int, n: int, seed: int) -> list[float]:
        ways = Ways(model=self.model, d=d, n=n, time=self.time, ways=(self.way,), distinct=True)
        return list(ways.compute(seed)[f"{self.way}, test error"])

    def columns(self, series: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        return {name: float(values[0]) for name, values in series.items()}


class Scales(Computed, frozen=True, tag="question2/scales"):
    """Test errors of 1-SAM with bias from its initialization over η × the scale of the first layer,
    each for the same time."""

    rates: tuple[float, ...] = (0.003, 0.01, 0.03)
    scales: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0)
    width: int = 100
    d: int = 30
    n: int = 100
    time: float = 8.0

    def compute(self, seed: int) -> Mapping[str, Any]:
        return {
            _cell("η", rate, "scale", scale): [self._error(rate, scale, seed)]
            for rate in self.rates
            for scale in self.scales
        }

    def _error(self, rate: float, scale: float, seed: int) -> float:
        sam = ft.sam(rate, 0.05, epochs=round(self.time / (rate * 0.05**2 / 2 * self.n)))
        task = Decided(phases=(sam,), model=scaled(self.width, scale), d=self.d, n=self.n)
        return float(task.compute(seed)["test_error"][-1])

    def columns(self, series: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        return {name: float(values[0]) for name, values in series.items()}


def scaled(width: int, scale: float) -> ft.MLP:
    """Two layers with bias whose first layer is drawn at a multiple of its scale."""
    first = ft.Init(scales=(("W1", scale), ("b1", scale)))
    return ft.MLP(width, bias=True, initialization=first)


def _cell(row: str, at: float, column: str, of: float) -> str:
    return f"{row} = {at:g}, {column} = {of:g}"
