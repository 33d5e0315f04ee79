"""The command line: what it prints, for people and programs, and its exit codes."""

import csv
import inspect
import io
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_origin

import msgspec
import numpy as np
import pytest
import tyro
from rich.console import Console

from flattest.cli import _dispatch as cli
from flattest.cli.list import table as list_table
from flattest.cli.status import table as status_table
from flattest.cli.verify import table as verify_table
from flattest.evidence import Verdict
from flattest.experiments import registry
from flattest.experiments.expectations import AtMost
from flattest.ledger.verify import LedgerRow
from flattest.runs.export import flat_settings
from flattest.runs.plan import Job
from flattest.runs.store import Store
from flattest.runs.work import work
from flattest.training.run import Run
from support.places import SOURCE
from support.shell import flattest
from support.stores import rot
from support.tasks import Failing, Square, experiment_of


@pytest.fixture
def panels(monkeypatch, tmp_path):
    """Three experiments: one whose expectation is met, one whose is not, one that fails."""
    found = [
        experiment_of("p/fig1a", Square(), 2, AtMost(series="square", value=9)),
        experiment_of("p/fig1b", Square(n=9), 2, AtMost(series="square", value=9)),
        experiment_of("q/bad", Failing(), 1),
    ]
    by_name = {e.name: e for e in found}
    monkeypatch.setattr(registry, "experiments", lambda: by_name)
    monkeypatch.chdir(tmp_path)
    return by_name


def table(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def run_quietly(capsys, *arguments):
    return flattest(capsys, "run", *arguments, "--workers", "1")


def test_without_arguments_it_lists_the_commands_without_importing_them(capsys):
    code, out, _ = flattest(capsys)
    assert code == 0
    for name in cli.commands():
        assert f"  {name} " in out
        assert len(cli.summary(name)) > 20
    assert {"list", "run", "status", "show", "export"} <= set(cli.commands())


@pytest.mark.parametrize("name", cli.commands())
def test_every_command_teaches_with_examples(capsys, name):
    code, out, _ = flattest(capsys, name, "--help")
    assert code == 0
    assert "Examples:" in out
    assert f"flattest {name}" in out


@pytest.mark.parametrize("name", cli.commands())
def test_every_argument_says_what_it_is(name):
    for argument in inspect.signature(cli.load(name)).parameters.values():
        notes = getattr(argument.annotation, "__metadata__", ())
        assert any(getattr(note, "help", None) for note in notes), argument


@pytest.mark.parametrize("name", cli.commands())
def test_help_shows_optional_arguments_as_optional_and_no_default_that_says_nothing(capsys, name):
    _, out, _ = flattest(capsys, name, "--help")
    for noise in ("None", "default: )", "default: False", "\n\n\n", "Examples:\n\n"):
        assert noise not in out
    for argument in inspect.signature(cli.load(name)).parameters.values():
        kind, *notes = get_args(argument.annotation)
        if tyro.conf.Positional in notes:
            needed = argument.default is inspect.Parameter.empty
            assert (" ...]" in out) == (get_origin(kind) is tuple)
            assert ("(required)" in out) or not needed
            assert (f"\n│ [{metavar(notes)}" in out) != needed


def test_where_the_output_has_no_signs_for_boxes_they_are_drawn_in_ascii():
    done = in_a_shell("flattest example --help; flattest example --to x", PYTHONIOENCODING="ascii")
    assert "+- positional arguments -" in done.stdout
    assert "?" not in done.stdout.partition("+-")[2]
    assert done.stderr.startswith("flattest: `flattest example` does not take --to, x;")


def metavar(notes):
    return next(note.metavar for note in notes if getattr(note, "metavar", None))


@pytest.mark.parametrize("columns", [60, 100])
def test_help_breaks_its_paragraphs_between_words_where_the_terminal_ends(
    capsys, monkeypatch, columns
):
    monkeypatch.setenv("COLUMNS", str(columns))
    _, out, _ = flattest(capsys, "measure", "--help")
    prose = out.partition("Examples:")[0]
    assert columns - 15 < max(map(len, prose.splitlines())) <= columns
    said = cli.docstring(cli.HERE / "measure.py").partition("Examples:")[0]
    assert " ".join(said.split()) in " ".join(prose.split())


def test_help_explains_commands_and_topics(capsys):
    assert flattest(capsys, "help", "run")[1] == flattest(capsys, "run", "--help")[1]
    for topic in cli.TOPICS:
        code, out, _ = flattest(capsys, "help", topic)
        assert code == 0
        assert len(out.splitlines()) > 3
        assert topic in flattest(capsys, "help")[1]
    code, _, err = flattest(capsys, "help", "scenario")
    assert code == 2
    assert "did you mean 'scenarios'?" in err


def test_python_m_flattest_is_flattest():
    done = subprocess.run(
        [sys.executable, "-m", "flattest", "--version"],
        env=os.environ | {"PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    assert done.stdout.startswith("flattest ")


def test_bash_completes_commands_and_options(capsys, tmp_path):
    script = tmp_path / "completion.bash"
    script.write_text(flattest(capsys, "--tyro-print-completion", "bash")[1])
    asked = """source "$1"; shift; COMP_WORDS=(flattest "$@"); COMP_CWORD=$#
    $(complete -p flattest | sed 's/.*-F \\([^ ]*\\).*/\\1/'); echo "${COMPREPLY[@]}" """

    def completed(*words):
        call = ["bash", "-c", asked, "bash", str(script), *words]
        return subprocess.run(call, capture_output=True, text=True, timeout=60).stdout.split()

    assert completed("ju") == ["judge"]
    assert completed("run", "--sch") == ["--scheduler"]


def test_completion_scripts_know_every_command(capsys):
    for shell in ("bash", "zsh"):
        code, out, _ = flattest(capsys, "--tyro-print-completion", shell)
        assert code == 0
        assert all(name in out for name in cli.commands())


def test_the_version_names_the_package(capsys):
    assert flattest(capsys, "--version")[1].startswith("flattest ")


def test_list_prints_names_claims_and_whole_specs(capsys, panels):
    code, out, _ = flattest(capsys, "list")
    assert code == 0
    assert "p/fig1a" in out
    assert "It holds." in out
    _, out, _ = flattest(capsys, "list", "fig1*", "--json")
    assert [spec["name"] for spec in json.loads(out)] == ["p/fig1a", "p/fig1b"]


def on_a_terminal(width, shown):
    screen = Console(width=width, file=io.StringIO(), force_terminal=True, color_system=None)
    screen.print(shown)
    return screen.file.getvalue()


def test_the_names_of_experiments_and_claims_are_whole_on_a_narrow_terminal(panels):
    name, prose = "p/" + 47 * "x", 20 * "prose "
    e = msgspec.structs.replace(panels["p/fig1a"], name=name, figure="Figure 1", statement=prose)
    assert name in on_a_terminal(80, list_table([e]))
    words = dict.fromkeys(("source", "evidence", "cost", "expected"), "words")
    measured = Verdict("words", 0.123456789, 0.123456789, "=", 1e-9)
    found = {"status": "words", "as_expected": True, "grade": "proven", "basis": prose}
    row = LedgerRow(name, prose, **words, **found, verdict=measured)
    assert name in on_a_terminal(80, verify_table([row]))


def test_the_keys_of_runs_are_whole_on_a_narrow_terminal(capsys, panels):
    run_quietly(capsys, "fig1a", "--seeds", "1")
    (run,) = Store.open("out/store").runs()
    shown = on_a_terminal(40, status_table([run]))
    assert run.key[:10] in shown
    assert "…" not in shown


def test_plot_says_where_there_is_no_figure(capsys, panels):
    run_quietly(capsys, "fig1a")
    code, _, err = flattest(capsys, "plot", "fig1a")
    assert code == 2
    assert "There is no figure of fig1a" in err


def test_plot_asks_for_runs_only_where_there_is_a_figure(capsys, panels, monkeypatch):
    Store.create("out/store")
    code, _, err = flattest(capsys, "plot", "fig1a")
    assert (code, "There is no figure of fig1a" in err) == (2, True)
    monkeypatch.setattr("flattest.cli.plot.figures", lambda name: {"figure": None})
    code, _, err = flattest(capsys, "plot", "fig1a", "--full")
    assert (code, "`flattest run p/fig1a --full` makes them" in err) == (2, True)


def test_run_exits_0_when_expectations_are_met_and_1_when_not(capsys, panels):
    code, out, _ = run_quietly(capsys, "fig1a")
    assert code == 0
    assert "✓ p/fig1a (quick): It holds." in out
    assert "square at the end is 4.5 [4, 5] over 2 seeds; expected ≤ 9." in out
    code, out, _ = run_quietly(capsys, "fig1*")
    assert code == 1
    assert "✗ p/fig1b" in out


def test_run_judges_as_json(capsys, panels):
    code, out, _ = run_quietly(capsys, "fig1a", "--json", "--seeds", "1")
    (judgement,) = json.loads(out)
    assert code == 0
    assert judgement["met"] is True
    assert judgement["verdicts"][0] == {
        "statement": "square at the end",
        "value": 4.0,
        "bound": 9,
        "relation": "≤",
        "tolerance": 0.0,
        "values": [4.0],
        "seeds": None,
        "interval": None,
        "feasible": True,
        "attack": None,
        "holds": True,
    }


def test_a_failed_run_is_not_met_and_says_why(capsys, panels):
    code, out, _ = run_quietly(capsys, "bad")
    assert code == 1
    assert "seed 0 failed: The width must be positive." in out


def test_a_spec_file_runs_like_a_panel(capsys, panels, tmp_path):
    _, out, _ = flattest(capsys, "list", "fig1a", "--json")
    Path("mine.json").write_text(out.replace('"value": 9', '"value": 1'))
    assert run_quietly(capsys, "fig1a")[0] == 0
    code, out, _ = run_quietly(capsys, "mine.json")
    assert code == 1
    assert len(Store.open("out/store").runs()) == 2


def test_status_lists_runs_and_marks_broken_ones(capsys, panels):
    run_quietly(capsys, "fig1a")
    broken = Store.open("out/store").runs()[1]
    (broken.folder / "series.npz").unlink()
    code, out, _ = flattest(capsys, "status")
    assert code == 0
    assert "1 finished, 1 broken" in out
    _, out, _ = flattest(capsys, "status", "fig1a", "--json")
    assert [run["status"] for run in json.loads(out)] == ["finished", "broken"]


def test_status_shows_sharpness_and_test_error(capsys, panels):
    store = Store.create("out/store")
    with store.lease(store.add(Square(), 0, "judge/mine")) as lease:
        lease.finish(Run(series={"sharpness": [7.0, 22.125], "test_error": [0.5, np.nan]}))
    _, out, _ = flattest(capsys, "status")
    assert "22.12" in out
    (run,) = json.loads(flattest(capsys, "status", "--json")[1])
    assert (run["sharpness"], run["test_error"]) == (22.125, None)


@pytest.mark.slow
def test_a_finished_command_names_the_next_one(capsys, panels):
    for arguments, then in (
        (("run", "fig1a", "--workers", "1"), "Next: `flattest report` shows it on a page"),
        (("run", "fig1a", "--store", "a b"), "`flattest report --store 'a b'`"),
        (("status",), "Next: `flattest show KEY`"),
        (("list", "fig1a"), "Next: `flattest run p/fig1a`"),
    ):
        assert then in flattest(capsys, *arguments)[1]


def test_status_finds_a_run_under_each_experiment_that_shares_it(capsys, panels):
    panels["p/fig2"] = experiment_of("p/fig2", Square(), 2, AtMost(series="square", value=5))
    run_quietly(capsys, "fig1a")
    one, two = (json.loads(flattest(capsys, "status", n, "--json")[1]) for n in ("fig1a", "fig2"))
    assert len(one) == 2
    assert one == two


def test_show_tells_all_of_a_run(capsys, panels):
    run_quietly(capsys, "fig1a")
    key = Store.open("out/store").runs()[0].key
    code, out, _ = flattest(capsys, "show", key[:8])
    assert code == 0
    for text in ("p/fig1a:quick", "finished", '"n": 3', '"cores"', "square"):
        assert text in out
    _, out, _ = flattest(capsys, "show", "fig1a@1", "--json")
    shown = json.loads(out)
    assert shown["series"]["square"] == [1.0, 2.0, 5.0]
    assert shown["run"]["seed"] == 1


def test_show_finds_a_run_of_ones_own_by_its_name(capsys, panels):
    store = Store.create("out/store")
    key = store.add(Square(), 4, "judge/mine")
    work(store.root, Job(Square(), 4, key, "judge/mine"))
    _, out, _ = flattest(capsys, "show", "judge/mine@4", "--json")
    assert json.loads(out)["run"]["key"] == key


@pytest.mark.parametrize("file", ["spec.json", "series.npz"])
def test_show_survives_a_broken_run(capsys, panels, file):
    run_quietly(capsys, "fig1a", "--seeds", "1")
    (run,) = Store.open("out/store").runs()
    (run.folder / file).write_bytes(b"{" * (run.folder / file).stat().st_size)
    for arguments in ((), ("--json",)):
        code, out, _ = flattest(capsys, "show", run.key, *arguments)
        assert code == 0
        assert "broken" in out


def test_export_to_csv_has_every_value(capsys, panels):
    run_quietly(capsys, "fig1a")
    code, _, _ = flattest(capsys, "export", "fig1a", "--out", "csv")
    assert code == 0
    rows = table("csv/series.csv")
    assert [(r["seed"], float(r["square"])) for r in rows] == [
        (str(seed), float(i**2 + seed)) for seed in (0, 1) for i in range(3)
    ]
    assert [r["status"] for r in table("csv/runs.csv")] == ["finished"] * 2


def test_exported_runs_have_their_settings_and_where_they_ended(capsys, panels):
    run_quietly(capsys, "fig1*")
    flattest(capsys, "export", "--out", "csv")
    rows = table("csv/runs.csv")
    assert [(r["type"], r["n"]) for r in rows] == [("test/square", n) for n in "3399"]
    assert [float(r["final.square"]) for r in rows] == [4, 5, 64, 65]


def test_settings_are_one_row_whatever_their_depth():
    task = {"n": 3, "model": {"type": "mlp", "norm": None}, "phases": [{"lr": 0.1}, {"lr": 0.2}]}
    assert flat_settings(task) == {
        "n": 3,
        "model.type": "mlp",
        "phases[0].lr": 0.1,
        "phases[1].lr": 0.2,
    }


def test_export_leaves_out_a_run_whose_results_rot_and_says_so(capsys, panels):
    run_quietly(capsys, "fig1a")
    whole, rotten = Store.open("out/store").runs()
    rot(rotten.folder / "series.npz")
    code, out, _ = flattest(capsys, "export", "fig1a", "--out", "csv")
    assert code == 0
    assert f"Left out run {rotten.key}: Cannot read" in " ".join(out.split())
    assert {r["key"] for r in table("csv/series.csv")} == {whole.key}
    rot(whole.folder / "series.npz")
    code, _, err = flattest(capsys, "export", "fig1a")
    assert code == 2
    assert "None of the 2 runs can be exported: Cannot read" in err


@pytest.mark.peer
def test_export_to_parquet_agrees_with_csv(capsys, panels):
    parquet = pytest.importorskip("pyarrow.parquet")
    run_quietly(capsys, "fig1*")
    assert flattest(capsys, "export", "--format", "parquet", "--out", "pq")[0] == 0
    arrow = parquet.read_table("pq/series.parquet").to_pylist()
    flattest(capsys, "export", "--out", "csv")
    rows = table("csv/series.csv")
    assert [float(r["square"]) for r in rows] == [r["square"] for r in arrow]
    assert [r["key"] for r in rows] == [r["key"] for r in arrow]


@pytest.mark.peer
def test_export_to_tensorboard_says_where_it_cannot_write(capsys, panels):
    pytest.importorskip("tensorboard")
    run_quietly(capsys, "fig1a", "--seeds", "1")
    Path("afile").write_text("")
    code, _, err = flattest(capsys, "export", "--format", "tensorboard", "--out", "afile")
    assert code == 2
    assert "Cannot write afile/" in err


@pytest.mark.peer
def test_export_to_tensorboard_can_be_read_by_it(capsys, panels):
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader")
    run_quietly(capsys, "fig1a", "--seeds", "1")
    assert flattest(capsys, "export", "--format", "tensorboard", "--out", "tb")[0] == 0
    (file,) = Path("tb/p/fig1a-quick").glob("seed0-*/*")
    events = [e for e in loader.LegacyEventFileLoader(str(file)).Load() if e.summary.value]
    read = [(e.step, v.simple_value) for e in events for v in e.summary.value if v.tag == "square"]
    assert read == [(0, 0.0), (1, 1.0), (2, 4.0)]


# Bad input: one sentence, exit code 2, nothing half-written.


def old_schema():
    Store.create("out/store")
    db = sqlite3.connect("out/store/index.sqlite")
    db.execute("PRAGMA user_version=0")
    db.close()


def malformed():
    Path("mine.json").write_text('{"name": "p/x", "claims": 3}')


def no_folder():
    Path("out").write_text("")


def nothing():
    pass


def empty_store():
    Store.create("out/store")


BAD_INPUT = {
    "unknown command": (nothing, ["runn"], "Unknown command 'runn' (did you mean 'run'?)"),
    "unknown panel": (nothing, ["run", "fig1c"], "the nearest are fig1"),
    "no panel": (nothing, ["run"], "Say what to run"),
    "malformed spec": (malformed, ["run", "mine.json"], "mine.json is malformed"),
    "missing spec": (nothing, ["run", "absent.json"], "No such file"),
    "no store": (nothing, ["status"], "There is no store"),
    "another schema": (old_schema, ["run", "fig1a"], "schema 0, from an older"),
    "unwritable store": (no_folder, ["run", "fig1a"], "Cannot write out/store"),
    "both variants": (nothing, ["run", "fig1a", "--quick", "--full"], "exclude each other"),
    "no seeds": (nothing, ["run", "fig1a", "--seeds", "0"], "at least 1"),
    "no seeds to plot": (empty_store, ["plot", "fig1a", "--seeds", "0"], "at least 1"),
    "no seeds to summarize": (empty_store, ["summary", "fig1a", "--seeds", "-1"], "at least 1"),
    "unknown run": (empty_store, ["show", "abc"], "0 runs have a key"),
    "run of a seed not run": (empty_store, ["show", "fig1a@9"], "fig1a@9 has not been run"),
    "bad seed": (empty_store, ["show", "fig1a@x"], "EXPERIMENT@SEED"),
    "no decimal seed": (empty_store, ["show", "fig1a@²"], "EXPERIMENT@SEED"),
    "nothing to export": (empty_store, ["export"], "no runs to export"),
    "no port": (empty_store, ["serve", "--port", "99999"], "from 0 to 65535, not 99999."),
    "unknown option": (
        nothing,
        ["run", "fig1a", "--seedz", "3"],
        "not take --seedz, 3; perhaps --see",
    ),
    "unknown option, nothing near": (
        nothing,
        ["table1", "--xyz"],
        "`flattest table1` does not take --xyz;",
    ),
    "too many arguments": (nothing, ["measure", "a", "b"], "`flattest measure` does not take b;"),
    "missing file": (
        nothing,
        ["measure"],
        "`flattest measure` needs FILE; `flattest measure --help`",
    ),
    "missing two": (nothing, ["construct"], "needs NAME and -o FILE, --output FILE;"),
    "no number": (nothing, ["run", "fig1a", "--workers", "two"], "--workers N cannot be 'two';"),
    "no choice": (
        nothing,
        ["export", "--format", "xls"],
        "csv or parquet or tensorboard, not 'xls';",
    ),
    "no value": (nothing, ["measure", "a", "--data"], "--data needs a value;"),
    "no data": (nothing, ["range"], "Say which data: --data FILE.npz"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_sentence_and_exit_code_2(capsys, panels, case):
    prepare, arguments, sentence = BAD_INPUT[case]
    prepare()
    code, out, err = flattest(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert sentence in err
    assert err.count("\n") == 1
    assert not list(Path().glob("out/store/runs/*"))


def test_an_interruption_says_how_to_go_on(capsys, panels, monkeypatch):
    def interrupt(self, seed):
        raise KeyboardInterrupt

    monkeypatch.setattr(Square, "compute", interrupt)
    code, _, err = run_quietly(capsys, "fig1a")
    assert code == 130
    assert "training goes on from its last checkpoint" in err


def in_a_shell(line, **environment):
    """The shell's line, where `flattest` is the command line of this source."""
    main = "import sys; from flattest.cli._dispatch import main; sys.exit(main())"
    command = f"{sys.executable} -c '{main}'"
    return subprocess.run(
        ["bash", "-c", f'flattest() {{ {command} "$@"; }}; {line}'],
        env=os.environ | {"PYTHONPATH": SOURCE} | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


COMMANDS = [pytest.param(a, marks=pytest.mark.slow) for a in ("--help", "list --json")] + ["list"]


@pytest.mark.parametrize("arguments", COMMANDS)
def test_it_ends_quietly_when_its_reader_has_enough(arguments):
    done = in_a_shell(f"flattest {arguments} | true; exit ${{PIPESTATUS[0]}}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("arguments", COMMANDS)
def test_output_that_cannot_be_written_is_one_sentence_and_exit_code_2(arguments):
    done = in_a_shell(f"flattest {arguments} > /dev/full")
    sentence = "flattest: Cannot write the output: No space left on device.\n"
    assert (done.returncode, done.stderr) == (2, sentence)


def test_closed_output_is_no_error():
    done = in_a_shell("flattest list --json >&-")
    assert (done.returncode, done.stderr) == (0, "")


def test_letters_that_the_output_cannot_encode_are_replaced():
    done = in_a_shell("flattest list", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "?" in done.stdout


def test_every_spec_prints_as_json_that_reads_back(tmp_path, capsys, panels):
    for name, e in panels.items():
        _, out, _ = flattest(capsys, "list", name, "--json")
        (tmp_path / "spec.json").write_text(out)
        assert registry.read_experiment(tmp_path / "spec.json") == e
        assert msgspec.json.decode(out)["name"] == name
