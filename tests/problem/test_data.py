"""Datasets, held-out examples, populations and the checks on what a user brings."""

import numpy as np
import pytest

import flattest as ft
from flattest.problem.networks import Network, load_network, save_network


def wrong(f, y):
    return (f * y <= 0).astype(float)


def test_small_supports_are_enumerated_exactly():
    """Pr over {−1, 1}^d of a predictor that is right unless x[1] = x[3] = 1: 3/4."""
    law = ft.Xor(10)
    found = ft.population_mean(
        law, lambda x: x[:, 0] * x[:, 1] * np.where(x[:, 0] + x[:, 2] == 2, -1, 1), wrong
    )
    assert found == ft.Estimate(0.25, 0.0, exact=True)
    points = law.population()
    assert points.exact
    assert len(np.unique(points.x, axis=0)) == 2**10
    assert ft.CompleteXor(10).population().exact
    assert ft.Xor(20).population().exact
    assert not ft.Xor(21).population(size=10).exact


def test_large_supports_are_sampled_with_an_honest_standard_error():
    law = ft.Xor(30)
    found = [ft.population_mean(law, lambda x: x[:, 0], wrong, 400, seed) for seed in range(200)]
    errors = np.array([f.value - 0.5 for f in found])
    assert not found[0].exact
    assert found[0].stderr == pytest.approx(np.sqrt(0.25 / 400), rel=0.01)
    assert errors.std() == pytest.approx(found[0].stderr, rel=0.2)
    assert abs(errors.mean()) < 4 * found[0].stderr / np.sqrt(200)


def test_one_point_has_no_standard_error():
    assert ft.population_mean(ft.Ball(2), lambda x: x[:, 0], wrong, size=1).stderr == np.inf


def test_a_metric_must_be_per_point():
    with pytest.raises(ft.FlattestError, match="one number per point"):
        ft.population_mean(ft.Xor(4), lambda x: x[:, 0], ft.zero_one_error)


def test_a_users_npz_is_a_dataset(cwd):
    x, y = np.arange(6.0).reshape(3, 2), np.array([1, 0, 1])
    np.savez(cwd / "own.npz", x=x, y=y)
    data = ft.Dataset.load(cwd / "own.npz")
    assert np.array_equal(data.x, x)
    assert data.y.dtype == np.float64
    assert (data.n, data.d, data.distribution) == (3, 2, None)


def test_datasets_cannot_be_changed_and_do_not_alias():
    x = np.eye(2)
    data = ft.Dataset(x, [1, 2])
    x[0, 0] = 9
    assert data.x[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        data.x[0, 0] = 5


def test_what_a_split_leaves_for_training_cannot_be_changed():
    data = ft.Dataset(X, Y, test=5)
    for array in (data.x, data.y):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5


def test_files_that_are_no_dataset_are_refused(cwd):
    np.save(cwd / "bare.npy", np.eye(2))
    np.savez(cwd / "other.npz", a=np.eye(2))
    np.savez(cwd / "pickle.npz", x=np.array([{}, {}], object), y=np.ones(2))
    (cwd / "text.npz").write_text("not a zip")
    (cwd / "empty.npz").touch()
    np.savez(cwd / "whole.npz", x=np.eye(2), y=np.ones(2))
    (cwd / "cut.npz").write_bytes((cwd / "whole.npz").read_bytes()[:-40])
    np.savez(cwd / "nan.npz", x=np.full((2, 2), np.nan), y=np.ones(2))
    for name, message in {
        "bare.npy": "cannot be read as an .npz",
        "other.npz": "must hold arrays named x and y",
        "pickle.npz": "cannot be read as an .npz",
        "text.npz": "cannot be read as an .npz",
        "empty.npz": "cannot be read as an .npz",
        "cut.npz": "cannot be read as an .npz",
        "nan.npz": "x has entries that are not finite",
        "missing.npz": "There is no file",
        ".": "is a folder",
    }.items():
        with pytest.raises(ft.FlattestError, match=message):
            ft.Dataset.load(cwd / name)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.ones(3), np.ones(3), r"x must be \(n, d\) and y \(n,\), or .* not \(3,\) and \(3,\)"),
        (np.ones((3, 2)), np.ones(2), r"not \(3, 2\) and \(2,\)"),
        (np.ones((3, 2)), np.ones((3, 1)), r"not \(3, 2\) and \(3, 1\)"),
        (np.ones((0, 2)), np.ones(0), "dataset is empty"),
        (np.ones((2, 0)), np.ones(2), "dataset is empty"),
        (np.array([[1.0, np.nan]]), np.ones(1), "NaN or infinite"),
        (np.ones((1, 2)), np.array([np.inf]), "NaN or infinite"),
        ([["a"]], [1.0], "x must hold real numbers only"),
        ([[1.0], [1.0, 2.0]], [1.0, 2.0], "x must hold real numbers only"),
        (np.ones((1, 1)), np.array([1j]), "y must hold real numbers only"),
    ],
)
def test_bad_arrays_are_refused(x, y, message):
    with pytest.raises(ft.FlattestError, match=message):
        ft.Dataset(x, y)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ft.Xor(1), "Xor's d must be an integer ≥ 2, not 1"),
        (lambda: ft.Ball(2.5), "Ball's d must be an integer ≥ 2, not 2.5"),
        (lambda: ft.xor(n=0), "n must be a positive integer, not 0"),
        (lambda: ft.xor(n=2.0), "n must be a positive integer, not 2.0"),
        (lambda: ft.ball(n=-1), "n must be a positive integer"),
        (lambda: ft.xor(seed=-1), "seed must be a non-negative integer"),
        (lambda: ft.Xor(30).population(size=0), "size must be a positive integer"),
        (lambda: ft.circle(5, label="tan"), "Unknown circle label 'tan'; valid are: cos, cos2"),
        (lambda: ft.circle(5, d=2, radius=2.0), "radius must be 1 at d = 2"),
        (lambda: ft.univariate(5, target="cube"), "Unknown univariate target 'cube'; valid"),
        (lambda: ft.univariate(5, low=1.0, high=0.0), "low < high"),
        (lambda: ft.single_index(5, 3, link="glu"), "Unknown activation 'glu'; valid are:"),
        (lambda: ft.single_index(5, 3, noise=-1.0), "label noise must be ≥ 0"),
        (lambda: ft.sum_of_single_index(5, 3, r=4), r"r of indices must lie in \[1, d\], not 4"),
        (lambda: ft.SumOfSingleIndex(5, 2.5), "r must be a positive integer, not 2.5"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ft.FlattestError, match=message):
        make()


X, Y = np.arange(40.0).reshape(20, 2), np.tile([1.0, -1.0], 10)


def test_held_out_examples_are_where_errors_are_measured():
    data = ft.Dataset(X[:12], Y[:12], test_x=X[12:], test_y=Y[12:])
    found = ft.population_mean(data.distribution, lambda x: x[:, 0], wrong)
    assert found.value == np.mean(Y[12:] < 0)
    assert not found.exact
    assert found.stderr == pytest.approx(np.sqrt(0.25 / 7))
    again = data.distribution.draw(12, 7)
    assert np.array_equal(again.x, data.x)  # all there are, in their order
    few = data.distribution.draw(5, 7)
    assert len(np.unique(few.x, axis=0)) == 5
    assert set(few.x[:, 0]) <= set(X[:12, 0])


@pytest.mark.parametrize("test", [0.25, 5])
def test_a_share_of_the_rows_is_held_out(test):
    data, again, other = (ft.Dataset(X, Y, test=test, seed=seed) for seed in (0, 0, 1))
    rows = data.distribution.rows
    assert (len(data.y), len(rows.test_y)) == (15, 5)
    assert sorted([*data.x[:, 0], *rows.test_x[:, 0]]) == sorted(X[:, 0])
    assert again.distribution == data.distribution
    assert other.distribution != data.distribution


def test_examples_are_known_by_their_values():
    a = ft.Dataset(X, Y, test=5)
    assert ft.Dataset(X.copy(), Y, test=5).distribution == a.distribution
    changed = X.copy()
    changed[3, 1] += 1e-13
    assert ft.Dataset(changed, Y, test=5).distribution != a.distribution


def test_images_become_rows():
    images = np.arange(48.0).reshape(3, 4, 4)
    data = ft.Dataset(images, [1, 2, 3], test_x=images, test_y=[1, 2, 3])
    assert data.d == 16
    assert np.array_equal(data.x[1], images[1].ravel())


def test_tables_and_npz_files_with_held_out_examples_are_read(cwd):
    np.savez(cwd / "own.npz", x=X[:12], y=Y[:12], test_x=X[12:], test_y=Y[12:])
    assert len(ft.Dataset.load(cwd / "own.npz").distribution.rows.test_y) == 8
    lines = ["a,label,b", *(f"{row[0]},{y},{row[1]}" for row, y in zip(X, Y, strict=True))]
    (cwd / "own.csv").write_text("\n".join(lines))
    read = ft.Dataset.load(cwd / "own.csv", label="label", test=0.25)
    assert read.distribution == ft.Dataset(X, Y, test=0.25).distribution


@pytest.mark.peer
def test_parquet_is_read(cwd):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"a": X[:, 0], "y": Y, "b": X[:, 1]}), cwd / "own.parquet")
    data = ft.Dataset.load(cwd / "own.parquet")
    assert np.array_equal(data.x, X)
    assert np.array_equal(data.y, Y)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"test": 1.0}, "at least one row must be on each side"),
        ({"test": 20}, "at least one row must be on each side"),
        ({"test": True}, "at least one row must be on each side"),
        ({"test_x": X}, "both test_x and test_y"),
        ({"test_x": X[:, :1], "test_y": Y}, "have 1 inputs, the training set has 2"),
        ({"test_x": X, "test_y": Y[1:]}, "test_x must be"),
        ({"test_x": X * np.nan, "test_y": Y}, "test_x has entries that are not finite"),
        ({"test": 0.5, "distribution": ft.Xor(2)}, "Say one thing to measure errors on"),
    ],
)
def test_held_out_sets_that_make_no_sense_are_refused(settings, sentence):
    with pytest.raises(ft.FlattestError, match=sentence):
        ft.Dataset(X, Y, **settings)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a,b\n1,2\n", "has no column 'y' of labels; its columns are a, b"),
        ("y\n1\n", "has no column beside the labels"),
        ("y,a\n1,two\n", "cannot be read as columns of numbers"),
        ("y,a\n1\n", "cannot be read as columns of numbers"),
        ("", "cannot be read as columns of numbers"),
    ],
)
def test_tables_that_are_no_dataset_are_refused(cwd, text, sentence):
    (cwd / "own.csv").write_text(text)
    with pytest.raises(ft.FlattestError, match=sentence):
        ft.Dataset.load(cwd / "own.csv")


def test_a_network_file_keeps_the_held_out_examples(cwd):
    data = ft.Dataset(X, Y, test=5)
    few = data.distribution.draw(6, 0)
    model = ft.MLP(3)
    save_network(cwd / "own.safetensors", Network(model, model.init(2, 0), few))
    digest, rows = data.distribution.digest, data.distribution.rows
    del data, few
    read = load_network(cwd / "own.safetensors").data
    assert read.n == 6
    assert read.distribution.digest == digest
    assert np.array_equal(read.distribution.rows.test_x, rows.test_x)


def test_examples_that_are_not_here_say_so():
    with pytest.raises(ft.FlattestError, match="load the file that makes them"):
        ft.Examples(2, "unknown").draw(3, 0)


def test_training_measures_the_error_on_the_held_out_examples():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    data = ft.Dataset(x, np.sign(x[:, 0]), test=20)
    run = ft.train(ft.MLP(8), data, ft.sgd(0.01, epochs=20), log=ft.Log(points=2))
    rows = data.distribution.rows
    f = ft.predict(ft.MLP(8), run.params, rows.test_x, data.x)
    assert run["test_error"][-1] == np.mean(rows.test_y * f <= 0)
    assert run.notes == ()


def test_training_without_held_out_examples_says_that_no_test_error_is_known():
    run = ft.train(ft.MLP(8), ft.Dataset(X / 40, Y), ft.sgd(0.01, epochs=2))
    assert np.isnan(run["test_error"]).all()
    assert "Dataset(x, y, test=0.2)" in run.notes[0]
