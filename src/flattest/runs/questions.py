"""Questions of one's own that a store was asked, kept beside its runs and so found again.

An experiment from a file, a judgement, a phase diagram: each is a file `questions/KEY.json` with
the experiments behind it, the keys of their runs and, once there is one, the answer. The key hashes
the name and the tasks: a setup that was edited is another question, more seeds are the same one.
"""

import fnmatch
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from flattest.errors import FlattestError
from flattest.experiments import registry
from flattest.experiments.experiment import Experiment, VariantName
from flattest.files import read_sealed, write_sealed
from flattest.runs.store import Store
from flattest.training.keys import digest

Kind = Literal["experiment", "judgement", "diagram"]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """`experiments` are those behind it, by role, `runs` the keys of their runs, by seed; `about`
    is what was asked, a setup say; `asked` when, in seconds of the epoch; all as plain data.

    A file that cannot be read is a question with a `problem` and nothing else.
    """

    key: str
    name: str
    kind: Kind = "experiment"
    variant: VariantName = "full"
    about: Any = None
    experiments: dict[str, Any] = {}
    runs: dict[str, tuple[str, ...]] = {}
    asked: float = 0.0
    answer: Any = None
    problem: str = ""


def ask(
    store: Store,
    kind: Kind,
    name: str,
    roles: Mapping[str, Experiment],
    variant: VariantName = "full",
    seeds: Any = None,
    about: Any = None,
) -> Question:
    """Keep a question before its runs are begun; an answer that it had stays until the next."""
    key = digest([kind, name, variant, {r: e.variant(variant).task for r, e in roles.items()}])
    before = _read(_path(store, key)) if _path(store, key).exists() else None
    found = Question(
        key=key,
        name=name,
        kind=kind,
        variant=variant,
        about=about,
        experiments=dict(roles),
        runs={role: _keys(store, e, variant, seeds) for role, e in roles.items()},
        asked=time.time(),
        answer=before.answer if before else None,
    )
    write_sealed(_path(store, key), found)
    return found


def ask_own(
    store: Store, chosen: Iterable[Experiment], variant: VariantName, seeds: Any = None
) -> None:
    """Keep those of the experiments that no paper and no study has as they are here."""
    known = registry.experiments()
    for e in chosen:
        if known.get(e.name) != e:
            ask(store, "experiment", e.name, {variant: e}, variant, seeds)


def answered(store: Store, question: Question, answer: Any) -> None:
    write_sealed(_path(store, question.key), msgspec.structs.replace(question, answer=answer))


def questions(store: Store) -> list[Question]:
    """Every question that the store was asked, the last one first."""
    found = map(_read, (store.root / "questions").glob("*.json"))
    return sorted(found, key=lambda question: (-question.asked, question.key))


def own_experiments(store: Store) -> dict[str, Experiment]:
    """The experiments of one's own by name, as they were last asked for.

    One that only its file can make (with an activation that it registers, say) is left out here;
    its runs are found by their label.
    """
    found: dict[str, Experiment] = {}
    for question in reversed(questions(store)):
        for spec in question.experiments.values():
            try:
                e = registry.as_experiment(spec)
            except FlattestError:
                continue
            found[e.name] = e
    return found


def asked_for(store: Store, *patterns: str) -> list[Experiment]:
    """The experiments that match, one's own that the store was asked for and the registry's."""
    own = own_experiments(store)
    found: dict[str, Experiment] = {}
    for pattern in patterns:
        mine = {name: e for name, e in own.items() if is_called(name, pattern)}
        try:
            found |= {e.name: e for e in registry.matching(pattern)}
        except FlattestError:
            if not mine:
                raise
        found |= mine
    return list(found.values())


def asked_experiment(store: Store, name: str) -> Experiment:
    """The experiment of that name, whole or after the slash, one's own or the registry's."""
    own = [e for e in own_experiments(store).values() if is_called(e.name, name)]
    return own[0] if len(own) == 1 else registry.experiment(name)


def is_called(name: str, pattern: str) -> bool:
    """Whether the pattern matches a name, whole or, where it has no slash, after the slash."""
    short = name.partition("/")[2] if "/" not in pattern else name
    return any(fnmatch.fnmatchcase(n, pattern) for n in (name, short))


def _keys(store: Store, e: Experiment, variant: VariantName, seeds: Any) -> tuple[str, ...]:
    """The keys under which the store has or will have the runs, by seed."""
    every = e.variant(variant).keys(seeds)
    return tuple(next(filter(store.has, keys), keys[0]) for keys in every)


def _path(store: Store, key: str) -> Path:
    return store.root / "questions" / f"{key}.json"


def _read(path: Path) -> Question:
    try:
        return read_sealed(path, Question)
    except FlattestError as error:
        return Question(key=path.stem, name=path.name, problem=str(error))
