"""What measuring a network returns: numbers that print as a table and are JSON."""

import json
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True)
class Layer:
    """A weight's share of the trace, and of the least trace over rescalings where it is known."""

    trace: float
    least: float | None = None


@dataclass(frozen=True)
class Measurement:
    """How flat a network is, however its units are scaled.

    `trace` is Tr ∇²L with standard error `stderr` (0 where `method` is exact); `least` is the least
    trace over all rescalings that leave the function as it is (None where it is not known or
    degenerate: `notes` say why), proven down to `least_lower_bound`; `ratio` = trace / least.
    `top_eigenvalue` is λ_max(∇²L), with `residual` = ‖Hv − λv‖ / |λ|; None where it was left out.
    `bound` is a certified lower bound over all interpolators, where one is known, `bound_ratio` =
    least / bound (trace / bound where there is no least).
    `partial`: Ctrl-C ended it early, and `method` or `notes` say where.
    `least_gauss_newton`, of modules whose units are not known (attention, normalization), is the
    least of the Gauss–Newton trace `gauss_newton` over all symmetries found, units, attention heads
    and consecutive linear layers, proven down to `least_gauss_newton_lower_bound`; what goes into a
    normalization is held at the scale it has.
    `rescaled` is the flattest rescaled network: parameters or module, like those given; by the
    Gauss–Newton trace where that is all that is known.
    """

    trace: float
    stderr: float
    least: float | None
    least_lower_bound: float | None
    top_eigenvalue: float | None
    residual: float
    layers: dict[str, Layer]
    method: str
    parameters: int
    samples: int
    mean_loss: float
    seconds: float
    bound: float | None = None
    bound_reference: str = ""
    gauss_newton: float | None = None
    least_gauss_newton: float | None = None
    least_gauss_newton_lower_bound: float | None = None
    notes: tuple[str, ...] = ()
    partial: bool = False
    rescaled: Any = field(default=None, repr=False, compare=False)

    @property
    def ratio(self) -> float | None:
        return self.trace / self.least if self.least else None

    @property
    def bound_ratio(self) -> float | None:
        flat = self.trace if self.least is None else self.least
        return flat / self.bound if self.bound else None

    def as_dict(self) -> dict[str, Any]:
        """All but the rescaled network, ready for JSON."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "rescaled"}
        layers = {name: {"trace": l.trace, "least": l.least} for name, l in self.layers.items()}
        return plain | {"layers": layers, "ratio": self.ratio, "bound_ratio": self.bound_ratio}

    def json(self) -> str:
        return json.dumps(self.as_dict(), indent=1)

    def __str__(self) -> str:
        rows = [
            ("trace", _number(self.trace) + _error(self.stderr)),
            ("least over rescalings", _number(self.least)),
            ("trace / least", _number(self.ratio)),
            ("Gauss–Newton trace", _number(self.gauss_newton)),
            ("least over bases", _number(self.least_gauss_newton)),
            ("top eigenvalue", _eigenvalue(self)),
            ("lower bound", _bound(self)),
            ("mean loss", _number(self.mean_loss)),
            ("method", self.method),
            ("size", f"{self.parameters} parameters, {self.samples} samples"),
            ("time", f"{self.seconds:.2f} s"),
            *(("note", note) for note in self.notes),
        ]
        lines = [f"{name:<22}{value}" for name, value in rows if value]
        return "\n".join([*lines, "", *_layer_lines(self.layers)])


def _layer_lines(layers: dict[str, Layer]) -> list[str]:
    width = max([len("layer"), *map(len, layers)]) + 2
    head = f"{'layer':<{width}}{'trace':>16}{'least':>16}"
    rows = [
        f"{name:<{width}}{_number(layer.trace):>16}{_number(layer.least) or '-':>16}"
        for name, layer in layers.items()
    ]
    return [head, *rows] if layers else []


def _bound(found: Measurement) -> str:
    if found.bound is None:
        return ""
    ratio = f"{'trace' if found.least is None else 'least'} / bound {_number(found.bound_ratio)}"
    return f"{_number(found.bound)} ({found.bound_reference}), {ratio}"


def _eigenvalue(found: Measurement) -> str:
    if found.top_eigenvalue is None:
        return ""
    return f"{_number(found.top_eigenvalue)} (residual {found.residual:.1e})"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.8g}"


def _error(stderr: float) -> str:
    return f" ± {stderr:.2g}" if stderr else ""
