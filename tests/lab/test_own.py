"""Data, networks and steps of a user's own in a setup: kept, told apart, judged."""

import textwrap

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

import flattest as ft
from flattest.experiments.training import Training
from flattest.lab.sweep import SETTINGS
from flattest.runs.user_file import Reference
from flattest.training.keys import run_key

TINY = ft.Challenge(distribution=ft.Xor(4), n=8, model=ft.MLP(12, bias=True), wrong=2, steps=5)


class Flipped(ft.Distribution, frozen=True):
    flip: float = 0.0

    def sample(self, rng, n):
        x = 1.0 - 2.0 * rng.integers(0, 2, (n, self.d))
        return x, x[:, 0] * (1 - 2 * (rng.uniform(size=n) < self.flip))


def linear(params, x):
    return x @ params["w"]


def zeros(d, seed):
    return {"w": np.zeros(d)}


def descend(params, batch, key):
    x, y = batch
    g = jax.grad(lambda p: jnp.mean((linear(p, x) - y) ** 2))(params)
    return {name: p - 0.1 * g[name] for name, p in params.items()}


def setup(**changes):
    settings = {
        "name": "own",
        "distribution": Flipped(3),
        "n": 12,
        "model": ft.FunctionModel(linear, zeros),
        "algorithm": ft.own_step(descend, epochs=40),
        "challenge": TINY,
        "seeds": 2,
        "challenges": 1,
        "log": ft.Log(points=10),
    }
    return ft.Setup(**(settings | changes))


def key(asked):
    return run_key(asked.training(asked.algorithm), 0)


@pytest.mark.slow
def test_a_users_own_law_model_and_step_are_judged(tmp_path):
    found = ft.judge(setup(), tmp_path / "store")
    assert found.algorithm_generalizes.holds is True
    assert found.scenario in repr(found)
    assert msgspec.json.decode(found.json())["setup"] == "own"


def test_a_setup_of_examples_trains_on_all_of_them_and_is_tested_on_the_held_out(tmp_path):
    x = np.random.default_rng(0).normal(size=(40, 3))
    data = ft.Dataset(x, np.sign(x[:, 0]), test=0.5)
    asked = setup(distribution=data, algorithm=ft.gd(0.1, epochs=50), n=None)
    assert asked.n == 20
    run = asked.training(asked.algorithm).execute(0, place(tmp_path))
    rows = data.distribution.rows
    errors = rows.test_y * linear(run.params, rows.test_x) <= 0
    assert run["test_error"][-1] == errors.mean()


def place(folder):
    class Place:
        scratch, checkpoints = folder / "scratch", folder / "checkpoints"

        def progress(self, *report): ...

    return Place()


def test_specs_of_ones_own_are_read_back_as_they_were():
    task = setup().training(setup().algorithm)
    again = msgspec.json.decode(msgspec.json.encode(task), type=Training)
    assert run_key(again, 0) == run_key(task, 0)
    assert np.array_equal(again.distribution.draw(5, 1).x, Flipped(3).draw(5, 1).x)


def test_what_a_user_changes_is_another_key():
    other = {
        "a field of the law": setup(distribution=Flipped(3, flip=0.25)),
        "the network": setup(model=ft.FunctionModel(lambda p, x: 2 * x @ p["w"], zeros)),
        "the step": setup(algorithm=ft.own_step(lambda p, batch, key: p, epochs=40)),
        "the examples": setup(distribution=ft.Dataset(np.eye(3), np.ones(3), test=1), n=2),
    }
    keys = {name: key(asked) for name, asked in other.items()} | {"itself": key(setup())}
    assert len(set(keys.values())) == len(keys)
    assert key(setup()) == keys["itself"]


LAB = """
import flattest as ft
import numpy as np

FLIP = 0.0

class Law(ft.Distribution, frozen=True):
    def sample(self, rng, n):
        x = 1.0 - 2.0 * rng.integers(0, 2, (n, self.d))
        return x, x[:, 0] * (1 - 2 * (rng.uniform(size=n) < FLIP))

def setup():
    ft.register_activation("inside", lambda t: t * t / (1 + t * t))
    x, y = Law(3).sample(np.random.default_rng(0), 24)
    return ft.Setup(
        name="lab", distribution=ft.Dataset(x, y, test=8), n=8,
        model=ft.MLP(4, activation="inside"),
        algorithm=ft.gd(0.1, epochs=20), seeds=2, challenges=1, log=ft.Log(points=3),
        challenge=ft.Challenge(
            distribution=ft.Xor(4), n=8, model=ft.MLP(12, bias=True), wrong=2, steps=5
        ),
    )
"""


def lab(folder, text=LAB):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lab.py").write_text(textwrap.dedent(text))
    return Reference(folder / "lab.py", "setup")


def test_a_changed_constant_is_another_key_and_a_moved_file_the_same(tmp_path):
    first, moved = (key(lab(tmp_path / name).made()) for name in ("a", "b"))
    changed = key(lab(tmp_path / "c", LAB.replace("FLIP = 0.0", "FLIP = 0.5")).made())
    assert first == moved
    assert first != changed


@pytest.mark.slow
def test_workers_know_what_the_setup_function_makes_and_registers(tmp_path):
    reference = lab(tmp_path)
    found = ft.judge(reference.made(), tmp_path / "store", workers=2, preload=reference)
    assert len(found.algorithm_generalizes.verdict.values) == 2


def test_an_error_in_a_users_file_names_the_line(tmp_path, monkeypatch):
    from flattest.cli._user_file import load, run

    path = tmp_path / "broken.py"
    path.write_text("def setup():\n    return 1 / 0\n")
    with pytest.raises(ft.FlattestError, match=r"broken.py:2 with ZeroDivisionError"):
        run(load(f"{path}:setup"), "setup")
    path.write_text("def setup(:\n")
    with pytest.raises(ft.FlattestError, match=r"broken.py:1 with SyntaxError"):
        load(f"{path}:setup")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"distribution": "xor"}, "A setup's distribution cannot be this str"),
        ({"distribution": ft.Dataset(np.eye(3), np.ones(3))}, "cannot be this Dataset"),
        ({"model": linear}, "A setup's model cannot be this function"),
        ({"loss": "hinge"}, "Unknown loss 'hinge'"),
        ({"n": None}, "n cannot be"),
    ],
)
def test_setups_that_make_no_sense_are_refused_in_one_sentence(changes, sentence):
    with pytest.raises(ft.FlattestError, match=sentence):
        setup(**changes)


def test_a_loss_may_be_given_by_its_name():
    assert setup(loss="half_mse").loss == ft.HalfMSE()


@pytest.mark.slow
def test_a_sweep_is_read_as_a_table(tmp_path):
    found = ft.sweep(setup(), "n=4,8", "epochs=2,20", seeds=1, store=tmp_path / "store")
    assert "test error over n (across) and epochs (up)" in repr(found)
    assert len(msgspec.json.decode(found.json())["error"]) == 2


def test_a_setup_with_a_flow_is_trained_in_float64_and_others_as_before():
    settings = {
        "name": "flowing",
        "distribution": ft.Xor(8),
        "n": 6,
        "model": ft.MLP(20, bias=True),
    }
    flowing = ft.Setup(**settings, algorithm=(ft.gd(0.05, epochs=9), ft.flow(0.1)))
    assert flowing.training(flowing.algorithm).dtype == "float64"
    stepping = ft.Setup(**settings, algorithm=ft.gd(0.05, epochs=9))
    assert stepping.training(stepping.algorithm).dtype == "float32"
    alone = ft.Setup(**settings, algorithm=ft.flow(0.1))
    assert alone.algorithm == (ft.flow(0.1),)


def doubled(params, x, extra):
    return 2 * linear(params, x)


class Silent(ft.Distribution, frozen=True):
    """A law that forgot to say how to draw."""


BAD = {
    "shapes that do not fit": (
        {"model": ft.FunctionModel(linear, lambda d, seed: {"w": np.zeros(d + 1)})},
        "The model cannot be applied to 3 inputs with these parameters: ",
    ),
    "an apply with another signature": (
        {"model": ft.FunctionModel(doubled, zeros)},
        r"cannot be applied .*doubled\(\) missing 1 required positional argument: 'extra'",
    ),
    "an init with another signature": (
        {"model": ft.FunctionModel(linear, lambda d: {"w": np.zeros(d)})},
        r"init\(3, 0\) failed: .* takes 1 positional argument but 2 were given",
    ),
    "an init that gives no arrays": (
        {"model": ft.FunctionModel(linear, lambda d, seed: [np.zeros(d)])},
        "init gives a dict of arrays by name, not a list",
    ),
    "labels that do not suit the loss": (
        {"distribution": ft.Ball(3), "loss": "logistic"},
        "The logistic loss takes labels ±1",
    ),
    "classes for one output": (
        {"loss": "cross_entropy", "distribution": ft.Dataset(np.eye(3), [0, 1, 0], test=1), "n": 2},
        "must give a row per point",
    ),
    "a law that does not draw": ({"distribution": Silent(3)}, "Drawing from Silent failed"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_refused_before_anything_is_kept(name, tmp_path):
    changes, sentence = BAD[name]
    asked = setup(**({"algorithm": ft.gd(0.1, epochs=1)} | changes))
    for question in (ft.judge, lambda s, store: ft.sweep(s, "lr=0.1,0.2", "epochs=1,2", 1, store)):
        with pytest.raises(ft.FlattestError, match=sentence):
            question(asked, tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_an_optimizer_that_returns_nan_leaves_the_question_open(tmp_path):
    def broken(params, batch, key):
        return {name: p * jnp.nan for name, p in params.items()}

    found = ft.judge(setup(algorithm=ft.own_step(broken, epochs=2)), tmp_path / "store")
    assert found.scenario == "undetermined"
    assert "None of 2 seeds found a minimum" in found.algorithm_generalizes.sentence


def test_a_law_of_ones_own_is_varied_itself_and_examples_are_not():
    varied = SETTINGS["d"](setup(), 5)
    assert varied.distribution.draw(4, 0).d == 5
    assert np.array_equal(varied.distribution.draw(4, 0).x, Flipped(5).draw(4, 0).x)
    examples = setup(distribution=ft.Dataset(np.eye(3), np.ones(3), test=1), n=2)
    for asked, setting in ((examples, "d"), (setup(), "width")):
        with pytest.raises(ft.FlattestError, match=f"{setting} cannot be varied"):
            SETTINGS[setting](asked, 5)


@pytest.mark.slow
def test_a_setup_is_judged_by_a_flow(tmp_path):
    settings = {
        "name": "flowing",
        "distribution": ft.Xor(6),
        "n": 8,
        "model": ft.MLP(16, bias=True),
        "seeds": 2,
        "challenges": 1,
        "log": ft.Log(points=4),
    }
    descent = ft.gd(0.05, epochs=20_000, stop_loss=1e-8)
    found = ft.judge(
        ft.Setup(**settings, algorithm=(descent, ft.flow(0.1, epochs=2, kinks="walls"))),
        tmp_path / "store",
    )
    assert "over 2 seeds; sharpness" in found.algorithm_generalizes.sentence
    alone = ft.judge(ft.Setup(**settings, algorithm=ft.flow(0.1)), tmp_path / "store")
    assert "misses a target by" in alone.algorithm_generalizes.sentence
