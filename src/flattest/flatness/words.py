"""What measurements come to, in sentences: flatter, or only rescaled?"""

from collections.abc import Callable
from typing import Any

from flattest.curvature.sharpness import Function
from flattest.flatness.measure import measure
from flattest.flatness.measurement import Measurement

# Changes below this are not spoken of.
_SLIGHT = 0.05


def flatter_or_rescaled(
    trace: tuple[float, float],
    least: tuple[float | None, float | None],
    names: tuple[str, str],
    why: str = "",
) -> str:
    """What became of Tr ∇²L from the first network to the second, and how much of it is scale.

    The trace is the least trace over rescalings times what only scale adds to it, so that a change
    of the trace is the product of a change of the function's and one of scale's. `why` there is no
    least trace, where there is none.
    """
    first, second = names
    whole = f"Tr ∇²L is {trace[1]:.4g} {second} and {trace[0]:.4g} {first}"
    before, after = least
    if before is None or after is None:
        return (
            f"{whole}; there is no least trace over rescalings{f' ({why})' if why else ''}, so how "
            "much of that is only scale is not known."
        )
    parts = f"{whole}; least over rescalings {after:.4g} {second}, {before:.4g} {first}"
    if min(before, after, *trace) <= 0:
        return f"{parts}."
    function, all_of_it = after / before, trace[1] / trace[0]
    scale = all_of_it / function
    shares = f"by the function × {function:.3g}, by scale × {scale:.3g}"
    return f"{parts}: {_verdict(function, scale)} ({shares})."


def _verdict(function: float, scale: float) -> str:
    moved, scaled = (abs(change - 1) > _SLIGHT for change in (function, scale))
    if not moved:
        return "only rescaled" if scaled else "as flat as before"
    return f"{'flatter' if function < 1 else 'sharper'}{', and rescaled' if scaled else ''}"


def compared(one: Measurement, two: Measurement, names: tuple[str, str] = ("A", "B")) -> str:
    """Two measurements side by side, with the sentence."""
    rows: list[tuple[str, Callable[[Measurement], Any]]] = [
        ("trace", lambda m: m.trace),
        ("standard error", lambda m: m.stderr or None),
        ("least over rescalings", lambda m: m.least),
        ("trace / least", lambda m: m.ratio),
        ("top eigenvalue", lambda m: m.top_eigenvalue),
        ("lower bound", lambda m: m.bound),
        ("mean loss", lambda m: m.mean_loss),
        ("parameters", lambda m: float(m.parameters)),
        ("samples", lambda m: float(m.samples)),
    ]
    width = max(16, *(len(name) + 2 for name in names))
    lines = [f"{'':<24}{names[0]:>{width}}{names[1]:>{width}}{'B / A':>12}"]
    for name, of in rows:
        values = of(one), of(two)
        if values != (None, None):
            cells = "".join(f"{_number(value):>{width}}" for value in values)
            lines.append(f"{name:<24}{cells}{_ratio(*values):>12}")
    for name, found in zip(names, (one, two), strict=True):
        lines.append(f"{name}: {found.method}{''.join(f'; {note}' for note in found.notes)}")
    return "\n".join([*lines, "", comparison(one, two, names)])


def comparison(one: Measurement, two: Measurement, names: tuple[str, str] = ("A", "B")) -> str:
    """The sentence on two measurements."""
    spoken = f"in {names[0]}", f"in {names[1]}"
    return flatter_or_rescaled((one.trace, two.trace), (one.least, two.least), spoken)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.8g}"


def _ratio(one: float | None, two: float | None) -> str:
    return f"{two / one:.4g}" if one and two is not None else ""


def explain(
    function: Function,
    params: Any,
    data: Any,
    loss: Any = "mse",
    *,
    rtol: float = 1e-2,
    tol: float = 1e-8,
    most_products: int = 4096,
    seed: int = 0,
) -> str:
    """One paragraph on a network: how flat it is, how much of that is only scale, compared with
    what, exact or estimated. It is measured as `flattest.measure` does."""
    found = measure(
        function,
        params,
        data,
        loss,
        rtol=rtol,
        tol=tol,
        most_products=most_products,
        seed=seed,
    )
    return explained(found)


def explained(found: Measurement) -> str:
    """The paragraph on a measurement."""
    return " ".join([_how_flat(found), _how_much_is_scale(found), _compared_with(found)])


def _how_flat(found: Measurement) -> str:
    error = f" ± {found.stderr:.2g} (one standard error)" if found.stderr else ""
    how = "interrupted, partial" if found.partial else "an estimate" if found.stderr else "exact"
    return (
        f"On {found.samples} samples, at a loss of {found.mean_loss:.4g}, Tr ∇²L is "
        f"{found.trace:.5g}{error} over {found.parameters} parameters ({how}; {found.method})"
        f"{_how_stable(found.top_eigenvalue)}."
    )


def _how_stable(top: float | None) -> str:
    if top is None:
        return ""
    return (
        f", and the largest eigenvalue is {top:.5g}, so that steps of gradient descent below "
        f"{_step(top)} are stable"
    )


def _step(top: float) -> str:
    return f"2/λ = {2 / top:.3g}" if top > 0 else "any size"


def _how_much_is_scale(found: Measurement) -> str:
    if found.least is None or not found.ratio:
        why = "; ".join(found.notes) or "∇²L is 0"
        return f"How much of that is only scale is not known: {why}."
    share = 1 - 1 / found.ratio
    proof = found.least_lower_bound / found.least if found.least_lower_bound else 0.0
    return (
        f"Rescaling its units without changing the function brings the trace down to "
        f"{found.least:.5g} and, proven to {1 - proof:.0e}, no further: {share:.1%} of it is only "
        "scale. Networks are to be compared by that number."
    )


def _compared_with(found: Measurement) -> str:
    if found.bound is None or found.bound_ratio is None:
        return "No lower bound over all networks that fit these data is known here."
    return (
        "No network of this architecture that interpolates these data has less than "
        f"{found.bound:.5g} ({found.bound_reference}); this one has "
        f"{found.bound_ratio:.4g} times that."
    )
