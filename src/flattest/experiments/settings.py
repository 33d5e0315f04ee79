"""Settings of an experiment changed by name: width=200, rho=0.1, log.points=50.

A changed experiment is one's own: it has a name of its own and no paper's expectations.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Union

import msgspec

from flattest.errors import FlattestError, unknown
from flattest.experiments.experiment import VARIANTS, Experiment, Variant
from flattest.experiments.registry import experiments, task_types

OWN = "own"
# Where a setting is looked for: in the task itself, then in these parts of it, in this order.
_PARTS = ("distribution", "model", "phases", "loss", "model.initialization", "log")
Spec = dict[str, Any]


def changed(e: Experiment, assignments: Sequence[str]) -> Experiment:
    """The experiment with each NAME=VALUE set in both variants, in all phases that have the name.

    A name is that of a field, or says in which part it is: log.epochs. Where nothing changes it is
    the experiment itself; else it is one's own.
    """
    pairs = [_assignment(text) for text in assignments]
    variants = {v: _variant(e.variant(v), pairs) for v in VARIANTS}
    if all(variants[v].task == e.variant(v).task for v in VARIANTS):
        return e
    settings = ", ".join(f"{name}={value}" for name, value in pairs)
    suffix = re.sub(r"[^\w.=+-]+", "_", "-".join(f"{name}={value}" for name, value in pairs))
    return msgspec.structs.replace(
        e,
        name=f"{own_name(e)}-{suffix}",
        statement=f"{e.name} with {settings}, which is not the paper's setting.",
        quick=variants["quick"],
        full=variants["full"],
    )


def under_its_own_name(e: Experiment) -> Experiment:
    """The experiment; where it bears the name of one that a paper has otherwise, as one's own."""
    known = experiments().get(e.name)
    return e if known in (None, e) else msgspec.structs.replace(e, name=own_name(e))


def own_name(e: Experiment) -> str:
    return e.name if e.paper == OWN else f"{OWN}/{e.paper}-{e.panel.replace('/', '-')}"


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not (name and equals and value):
        raise FlattestError(f"Say what to set as NAME=VALUE, width=200 say, not {text!r}.")
    return name, value


def _variant(variant: Variant[Any], pairs: Sequence[tuple[str, str]]) -> Variant[Any]:
    task = _set(variant.task, pairs)
    if task == variant.task:
        return variant
    return Variant(task, variant.seeds)


def _set(task: Any, pairs: Sequence[tuple[str, str]]) -> Any:
    spec = msgspec.to_builtins(task)
    for name, value in pairs:
        parts = list(_holders(spec, name))
        if not parts:
            raise unknown("setting", name, _names(spec))
        for part in parts:
            part[name.rpartition(".")[2]] = _value(value)
    try:
        return msgspec.convert(spec, Union[task_types()])  # noqa: UP007
    except msgspec.ValidationError as error:
        said = ", ".join(f"{name}={value}" for name, value in pairs)
        raise FlattestError(f"With {said} the experiment makes no sense: {error}.") from None


def _holders(spec: Spec, name: str) -> Iterator[Spec]:
    """The parts of the task that have the setting: of the first kind of part that has it."""
    where, _, field = name.rpartition(".")
    for path in [where] if where else ["", *_PARTS]:
        found = [part for part in _at(spec, path) if field in part and field != "type"]
        if found:
            yield from found
            return


def _at(spec: Spec, path: str) -> list[Spec]:
    """The parts at a path, phases one by one."""
    parts: list[Any] = [spec]
    for step in filter(None, path.split(".")):
        inner = [part[step] for part in parts if isinstance(part, dict) and step in part]
        parts = [
            one for part in inner for one in (part if isinstance(part, list | tuple) else [part])
        ]
    return [part for part in parts if isinstance(part, dict)]


def _names(spec: Spec) -> set[str]:
    parts = [spec, *(part for path in _PARTS for part in _at(spec, path))]
    return {name for part in parts for name in part} - {"type", *_PARTS}


def _value(text: str) -> Any:
    """As JSON has it, else text: 200, 0.1, true, null, relu."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
