"""What there is to reproduce: papers and studies, each a folder, found by itself.

A folder of `flattest.papers`, of `flattest.studies` or of a directory named in the environment
variable FLATTEST_PAPERS is a paper; a study is a paper of our own. Of its modules

    __init__.py       has a docstring whose first line is the paper's title,
    experiments.py    defines `EXPERIMENTS`, a tuple of `Experiment`,
    figures.py        defines `FIGURES`: for each experiment's name its figures by name,
    claims.py         (or a package `claims`) registers claims by `@claim`,
    constructions.py  defines `CONSTRUCTIONS`, networks from its proofs by name,
    page.js           draws its tasks on the page: `PANELS[tag] = (id, runs) => elements`,
    page.py           defines `VIEWS`, what page.js needs of their series (report/views.py),
    results.json      keeps what `flattest summary --json` said of its runs at full scale,

all but the first where it has any. Nothing else is edited to add one.
"""

import difflib
import fnmatch
import functools
import importlib
import importlib.util
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Union

import msgspec

from flattest.errors import FlattestError
from flattest.experiments.experiment import Experiment, Task

MAIN_PAPER = "wen2023"


class Paper(msgspec.Struct, frozen=True):
    """A paper by its name, the first part of its experiments' names, or a study of our own."""

    name: str
    title: str
    kind: Literal["paper", "study"]
    package: str

    @property
    def folder(self) -> Path:
        return Path(str(importlib.import_module(self.package).__file__)).parent

    def module(self, name: str) -> ModuleType | None:
        """Its module or package of that name, None where it has none."""
        full = f"{self.package}.{name}"
        return importlib.import_module(full) if importlib.util.find_spec(full) else None


@functools.cache
def papers() -> dict[str, Paper]:
    """Every paper by name, the main one first, studies last."""
    found = [*_folders("flattest.papers", "paper"), *_folders("flattest.studies", "study")]
    found.sort(key=lambda paper: (paper.kind, paper.name != MAIN_PAPER, paper.name))
    return {paper.name: paper for paper in found}


def _folders(package: str, kind: Literal["paper", "study"]) -> Iterator[Paper]:
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        if module.ispkg:
            about = importlib.import_module(module.name).__doc__ or ""
            title = about.strip().partition("\n")[0]
            yield Paper(module.name.rpartition(".")[2], title, kind, module.name)


@functools.cache
def experiments() -> dict[str, Experiment]:
    """Every experiment by its full name, in the order of papers and panels."""
    found: dict[str, Experiment] = {}
    for paper in papers().values():
        for experiment in getattr(paper.module("experiments"), "EXPERIMENTS", ()):
            if experiment.name in found:
                raise FlattestError(f"There are two experiments named {experiment.name!r}.")
            found[experiment.name] = experiment
    return found


def experiment(name: str) -> Experiment:
    """The experiment of that name, full ("wen2023/fig4b") or short ("fig4b"), as in `matching`."""
    found = matching(name)
    if len(found) > 1:
        raise FlattestError(f"{name!r} may be {' or '.join(e.name for e in found)}; say which.")
    return found[0]


def matching(*patterns: str) -> list[Experiment]:
    """The experiments that match any of the patterns ("fig4b", "wen2023/*", "*/fig1?"), each once.

    A pattern without a slash is held against the panels of wen2023, the main paper, and against
    those of the others where it has none that match.
    """
    chosen = {e.name for pattern in patterns for e in _matching(pattern)}
    return [e for e in experiments().values() if e.name in chosen]


def _matching(pattern: str) -> list[Experiment]:
    every = list(experiments().values())
    if "/" in pattern:
        found = [e for e in every if fnmatch.fnmatchcase(e.name, pattern)]
    else:
        short = [e for e in every if fnmatch.fnmatchcase(e.panel, pattern)]
        found = [e for e in short if e.paper == MAIN_PAPER] or short
    if found:
        return found
    names = [n for e in every for n in (e.name, e.panel)]
    near = difflib.get_close_matches(pattern, names, n=3, cutoff=0.4)
    hint = f"the nearest are {', '.join(dict.fromkeys(near))}" if near else "none is near"
    raise FlattestError(f"No experiment matches {pattern!r}; {hint}; `flattest list` has all.")


def task_types() -> tuple[type[Task], ...]:
    """Every kind of task there is, those of all papers included."""
    experiments()
    return tuple(sorted(_leaves(Task), key=lambda kind: str(kind.__struct_config__.tag)))


def _leaves(kind: type[Task]) -> Iterator[type[Task]]:
    for child in kind.__subclasses__():
        if child.__struct_config__.tag is not None:
            yield child
        yield from _leaves(child)


def figures(experiment: str) -> dict[str, Any]:
    """The figures of an experiment by name; none where there is nothing to draw."""
    paper = papers().get(experiment.partition("/")[0])
    return getattr(paper and paper.module("figures"), "FIGURES", {}).get(experiment, {})


def read_experiment(path: Path) -> Experiment:
    """An experiment from a JSON or TOML file, in the form that `flattest list --json` prints."""
    decode = {".json": msgspec.json.decode, ".toml": msgspec.toml.decode}.get(path.suffix)
    if decode is None:
        raise FlattestError(f"A spec file ends in .json or .toml; {path.name} does not.")
    try:
        return decode(path.read_bytes(), type=_experiment_type())
    except OSError as error:
        raise FlattestError(f"Cannot read the spec file {path}: {error.strerror}.") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FlattestError(f"The spec file {path.name} is malformed: {error}.") from error


def as_experiment(spec: Any) -> Experiment:
    """An experiment from plain data, in the form that `flattest list --json` prints."""
    try:
        return msgspec.convert(spec, _experiment_type())
    except msgspec.ValidationError as error:
        raise FlattestError(f"This is not an experiment of this flattest: {error}.") from error


def _experiment_type() -> Any:
    """An experiment of any task there is."""
    return Experiment[Union[task_types()]]  # type: ignore[misc]  # noqa: UP007
