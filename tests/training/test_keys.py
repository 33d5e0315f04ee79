"""Keys: equal where the results are, and the same after the specs have grown."""

import json
import math
import typing

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

import flattest as ft
from flattest.experiments.registry import task_types
from flattest.experiments.training import Training
from flattest.lab.challenge import Challenge
from flattest.training.keys import (
    FIELDS,
    canonical_json,
    key_matcher,
    kind_name,
    meaning_of_absence,
    run_key,
    run_keys,
)
from flattest.training.state import ENGINE_VERSION, SAME_NUMBERS
from support.tasks import Spec


def test_every_field_the_seed_and_the_engine_change_the_key():
    found = {run_key(Spec(), 0), run_key(Spec(), 1), run_key(Spec(lr=0.1), 0)}
    found |= {run_key(Spec(epochs=11), 0), run_key(Spec(), 0, engine=ENGINE_VERSION + 1)}
    assert len(found) == 5
    assert run_key(Spec(lr=0.01), 0) in found


def test_a_run_may_have_the_key_of_an_engine_with_the_same_numbers():
    assert ENGINE_VERSION not in SAME_NUMBERS
    found = run_keys(Spec(), 3)
    assert list(found.values()) == [ENGINE_VERSION, *SAME_NUMBERS]
    assert list(found) == [run_key(Spec(), 3, engine) for engine in found.values()]


@pytest.mark.parametrize("micro_batch", [1, 2])
def test_a_key_matches_where_it_is_one_of_those_of_the_task_and_seed(micro_batch):
    phase = ft.sam(0.1, 0.1, batch=None, micro_batch=micro_batch, epochs=1)
    task, other = (replace(TASK, n=n, phases=(phase,)) for n in (12, 13))
    matches = key_matcher(task)
    assert all(matches(key, 3) for key in run_keys(task, 3))
    assert not any(matches(key, 4) for key in run_keys(task, 3))
    assert not any(matches(key, 3) for key in run_keys(other, 3))
    older = [run_key(task, 3, engine) for engine in SAME_NUMBERS]
    assert [matches(key, 3) for key in older] == [key in run_keys(task, 3) for key in older]


def test_runs_stand_since_the_version_that_last_changed_their_numbers():
    """Version 4 has kernels of its own for m-SAM of single samples, 5 another way to solve for the
    multipliers of walls."""
    alone, few = (ft.sam(0.1, 0.1, batch=None, micro_batch=m, epochs=1) for m in (1, 2))
    seen, walls = (ft.flow(0.1, kinks=kinks) for kinks in ("seen", "walls"))
    since = {alone: 4, few: 2, seen: 2, walls: 5}
    for phase, version in since.items():
        engines = run_keys(replace(TASK, phases=(phase,)), 0).values()
        assert list(engines) == list(range(ENGINE_VERSION, version - 1, -1))


@settings(deadline=None)
@given(st.floats(), st.floats())
def test_keys_are_equal_where_numbers_are(a, b):
    same = a == b or (math.isnan(a) and math.isnan(b))
    assert (run_key(Spec(lr=a), 0) == run_key(Spec(lr=b), 0)) == same


def test_a_whole_number_has_one_key_however_it_is_written():
    assert run_key(Spec(lr=1), 0) == run_key(Spec(lr=1.0), 0)
    assert run_key(Spec(lr=float("inf")), 0) != run_key(Spec(lr=None), 0)


def test_the_order_of_fields_does_not_change_the_key():
    forward, backward = {"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}
    assert run_key(forward, 0) == run_key(backward, 0)


# Growth

CHANGE = ft.StepChange(0.1, 3.0)
TASK = Training(
    distribution=ft.Xor(8),
    n=24,
    model=ft.MLP(32, bias=True),
    phases=(ft.sam(0.02, 0.1, epochs=4, step_change=CHANGE),),
)
KEY = run_key(TASK, 0)
# Where a spec stands in a task, how it is exchanged there, and one of its fields at its default.
PARTS = {
    "phase": (TASK.phases[0], lambda part: {"phases": (part,)}, "warmup"),
    "mlp": (TASK.model, lambda part: {"model": part}, "depth"),
    "init": (ft.Init(), lambda part: {"model": replace(TASK.model, initialization=part)}, "gamma"),
    "log": (TASK.log, lambda part: {"log": part}, "points"),
    "distribution": (TASK.distribution, lambda part: {"distribution": part}, "distinct"),
    "loss": (TASK.loss, lambda part: {"loss": part}, None),
    "step change": (
        CHANGE,
        lambda part: {"phases": (replace(TASK.phases[0], step_change=part),)},
        None,
    ),
}


def test_numpys_integers_have_the_keys_of_pythons():
    phase = ft.sam(0.02, 0.1, epochs=np.int64(4), batch=np.int32(1), step_change=CHANGE)
    assert run_key(replace(TASK, phases=(phase,)), np.int64(0)) == KEY


def test_the_keys_of_engine_3_are_fixed():
    """Stored runs are found by them."""
    assert run_key(TASK, 0, engine=3) == "949cec6bfe46ab73e162"


def remade(spec, name, default, **values):
    """The spec, of a class whose field `name`, new or not, has that default."""
    kind = type(spec)
    options = {"tag": kind.__struct_config__.tag, "frozen": True, "kw_only": True}
    larger = msgspec.defstruct(kind.__name__, [(name, object, default)], bases=(kind,), **options)
    kept = {f: getattr(spec, f) for f in kind.__struct_fields__ if f != name}
    return larger(**kept | values)


def key_with(place, name, default, **values):
    part, inserted, _ = PARTS[place]
    return run_key(replace(TASK, **inserted(remade(part, name, default, **values))), 0)


@pytest.mark.parametrize("place", PARTS)
@pytest.mark.parametrize("default", [False, 0.5, None, (1, 2), ft.Init()], ids=repr)
def test_a_new_field_at_its_default_leaves_the_key_as_it_was(place, default):
    assert key_with(place, "more", default) == KEY
    assert key_with(place, "more", default, more="other") != KEY


def test_a_new_field_of_a_task_leaves_the_key_as_it_was():
    assert run_key(remade(TASK, "more", False), 0) == KEY
    assert run_key(remade(TASK, "more", False, more=True), 0) != KEY


def test_0_is_not_false_but_1_is_1_0():
    assert key_with("phase", "more", False, more=0) != KEY
    assert key_with("phase", "more", 1.0, more=1) == KEY


@pytest.mark.parametrize("place", [place for place, (*_, field) in PARTS.items() if field])
def test_a_changed_default_changes_the_key(place):
    part, _, field = PARTS[place]
    assert key_with(place, field, getattr(part, field)) == KEY
    assert key_with(place, field, 7) != KEY


def test_what_absence_means_stays_as_recorded_when_the_default_changes(monkeypatch):
    monkeypatch.setitem(FIELDS.added, "phase", {"more": False})
    assert key_with("phase", "more", False) == KEY
    assert key_with("phase", "more", True) != KEY
    assert key_with("phase", "more", True, more=False) == KEY


def test_the_kinds_of_users_are_hashed_whole_whatever_they_are_called():
    mine = msgspec.defstruct("Init", [("weights", str, "uniform"), ("more", int, 1)])
    other = msgspec.defstruct("Init", [("weights", str, "uniform"), ("more", int, 2)])
    assert run_key(mine(), 0) != run_key(other(), 0)


def test_an_interrupted_training_goes_on_after_its_specs_have_grown(tmp_path):
    data, grown = ft.xor(n=8, d=4), remade(ft.sgd(0.01, epochs=3), "more", False)
    ft.train(ft.MLP(3), data, ft.sgd(0.01, epochs=3), checkpoint=tmp_path)
    assert ft.train(ft.MLP(3), data, grown, checkpoint=tmp_path).notes == ()


def kinds(annotation):
    """The specs that a type mentions, and those in their fields."""
    for argument in typing.get_args(annotation):
        yield from kinds(argument)
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield annotation
        for field in msgspec.structs.fields(annotation):
            yield from kinds(field.type)


FOUND = {kind for task in (*task_types(), Challenge) for kind in kinds(task)}
BUILT_IN = sorted(
    (kind for kind in FOUND if kind.__module__.startswith("flattest.")), key=kind_name
)


@pytest.mark.parametrize("kind", BUILT_IN, ids=kind_name)
def test_every_field_is_listed_or_what_its_absence_means_is_recorded(kind):
    name, fields = kind_name(kind), list(kind.__struct_encode_fields__)
    if name not in FIELDS.listed:
        # A paper is one folder: its tasks are hashed whole until somebody lists them.
        assert ".papers." in kind.__module__ or ".studies." in kind.__module__, (
            f'add to "listed" in training/fields.json: {json.dumps({name: fields})[1:-1]}'
        )
        return
    recorded = FIELDS.added.get(name, {})
    missing = set(fields) - set(FIELDS.listed[name]) - set(recorded)
    values = {field: meaning_of_absence(kind).get(field) for field in missing}
    line = json.loads(canonical_json({name: recorded | values}))
    assert not missing, (
        f'record in "added" of training/fields.json what absence means: {json.dumps(line)[1:-1]}'
    )
    assert set(recorded) <= set(fields)
    assert set(FIELDS.listed[name]) <= set(fields), "a field that is gone changes every key"


def test_only_kinds_that_exist_are_listed():
    assert {*FIELDS.listed, *FIELDS.added} <= {kind_name(kind) for kind in BUILT_IN}
