"""Running experiments: nothing is lost, nothing is doubled, whichever process dies."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from distributed import LocalCluster
from distributed.comm import CommClosedError
from rich.console import Console
from rich.progress import Progress
from threadpoolctl import threadpool_limits

from flattest.errors import FlattestError
from flattest.experiments.expectations import AtMost, RatioAtLeast
from flattest.experiments.experiment import Experiment, Variant
from flattest.experiments.registry import experiment
from flattest.files import StoreError
from flattest.runs import (
    cluster as cluster_module,
    plan as plan_module,
    results as results_module,
    work as work_module,
)
from flattest.runs.cluster import Unreadable, WorkersLost, _unpacked, connected, send
from flattest.runs.plan import plan
from flattest.runs.progress import Board, Remaining
from flattest.runs.results import assess, results
from flattest.runs.run import run_experiments
from flattest.runs.store import Store
from flattest.runs.user_file import Reference
from flattest.runs.work import do, until_done
from flattest.training.run import Run
from support.places import ENVIRONMENT
from support.stores import rot
from support.tasks import (
    Deadly,
    Failing,
    Square,
    Threads,
    Walk,
    experiment_of,
    steps_done,
    undisturbed,
)

QUIET = {"dashboard_address": "127.0.0.1:0", "protocol": "tcp"}
RUN = """
import sys
import threading
from support.tasks import Walk, experiment_of
from flattest.runs.run import run_experiments
from flattest.runs.store import Store
if __name__ == "__main__":
    root, folder, workers, dies, waits = sys.argv[1:]
    task = Walk(folder=folder, dies=int(dies), waits=int(waits))
    e = experiment_of("t/walk", task, 3)
    run_experiments([e], "quick", Store.create(root), workers=int(workers))
"""


@pytest.fixture
def store(tmp_path):
    return Store.create(tmp_path / "store")


def start(tmp_path, workers, dies=-1, waits=-1):
    script = tmp_path / "script.py"
    script.write_text(RUN)
    arguments = [str(tmp_path / "store"), str(tmp_path), str(workers), str(dies), str(waits)]
    return subprocess.Popen([sys.executable, str(script), *arguments], env=ENVIRONMENT)


def walk(tmp_path, **fields):
    return experiment_of("t/walk", Walk(folder=str(tmp_path), **fields), 3)


def assert_each_step_was_taken_once_with_the_same_result(tmp_path, e):
    found = results(e, "quick", Store.open(tmp_path / "store"))
    assert [r.seed for r in found] == [0, 1, 2]
    for r in found:
        assert r.series["v"].tolist() == undisturbed(r.seed)
    assert sorted(steps_done(tmp_path)) == [(s, i) for s in range(3) for i in range(1, 21)]


def test_results_are_stored_judged_and_not_computed_again(store):
    e = experiment_of("t/square", Square(), 2, AtMost(series="square", value=4.5))
    (assessment,) = run_experiments([e], "quick", store, workers=1)
    assert assessment.met
    assert assessment.verdicts[0].values == (4.0, 5.0)
    before = [run.finished for run in store.runs()]
    assert plan([e], "quick", store) == []
    run_experiments([e], "quick", store, workers=1)
    assert [run.finished for run in store.runs()] == before


@pytest.mark.parametrize("file", ["series.npz", "params.safetensors"])
def test_a_run_whose_results_rot_is_left_out_of_the_assessment_and_done_again(
    tmp_path, store, file
):
    e = experiment_of("t/walk", Walk(folder=str(tmp_path)), 2)
    run_experiments([e], "quick", store, workers=1)
    whole, rotten = store.runs()
    rot(rotten.folder / file)
    judged = assess(e, "quick", store)
    assert (judged.met, judged.missing) == (False, 1)
    assert [run.status for run in judged.runs] == ["finished", "broken"]
    assert file in judged.runs[1].sentence
    (again,) = run_experiments([e], "quick", store, workers=1)
    assert again.met
    assert store.run(rotten.key).series()["v"].tolist() == undisturbed(1)
    assert store.run(whole.key) == whole


def test_more_seeds_add_to_those_that_are_done(store):
    e = experiment_of("t/square", Square(), 2, AtMost(series="square", value=9))
    run_experiments([e], "quick", store, workers=1)
    assert [job.seed for job in plan([e], "quick", store, seeds=4)] == [2, 3]


def test_an_expectation_changes_the_verdict_without_another_run(store):
    lenient = experiment_of("t/square", Square(), 2, AtMost(series="square", value=9))
    strict = experiment_of("t/square", Square(), 2, AtMost(series="square", value=1))
    (first,) = run_experiments([lenient], "quick", store, workers=1)
    assert plan([strict], "quick", store) == []
    second = assess(strict, "quick", store)
    assert (first.met, second.met) == (True, False)
    assert first.key != second.key


def test_a_field_of_the_task_changes_the_run(store):
    bound = AtMost(series="square", value=4.5)
    run_experiments([experiment_of("t/square", Square(), 2, bound)], "quick", store, workers=1)
    wider = experiment_of("t/square", Square(n=4), 2, bound)
    assert len(plan([wider], "quick", store)) == 2
    assert not run_experiments([wider], "quick", store, workers=1)[0].met


def test_experiments_with_the_same_task_share_its_runs(store):
    bound = AtMost(series="square", value=9)
    two = [experiment_of(f"t/{name}", Square(), 2, bound) for name in "ab"]
    assert len(plan(two, "quick", store)) == 2


def test_experiments_that_share_a_name_are_both_run_and_judged(store):
    bound = AtMost(series="square", value=4.5)
    two = [experiment_of("t/square", Square(n=n), 1, bound) for n in (3, 4)]
    first, second = run_experiments(two, "quick", store, workers=1)
    assert (first.missing, second.missing) == (0, 0)
    assert (first.met, second.met) == (True, False)


def test_what_is_compared_with_is_run_beside_a_spec_of_its_name(store, monkeypatch):
    small, mine = (experiment_of("t/a", Square(n=n), 1) for n in (2, 5))
    large = experiment_of(
        "t/b", Square(n=3), 1, RatioAtLeast(other="t/a", series="square", ratio=3.9)
    )
    for module in (plan_module, results_module):
        monkeypatch.setattr(module, "experiment", {"t/a": small}.__getitem__)
    assert run_experiments([mine, large], "quick", store, workers=1)[1].met


def test_an_unrun_experiment_does_not_meet_its_expectations(store):
    assessment = assess(experiment_of("t/square", Square()), "quick", store)
    assert not assessment.met
    assert assessment.missing == 2


def test_what_an_expectation_compares_with_is_run_too(store, monkeypatch):
    small = experiment_of("t/a", Square(n=2), 1, AtMost(series="square", value=9))
    large = experiment_of(
        "t/b", Square(n=3), 1, RatioAtLeast(other="t/a", series="square", ratio=3.9)
    )
    for module in (plan_module, results_module):
        monkeypatch.setattr(module, "experiment", {"t/a": small}.__getitem__)
    assert run_experiments([large], "quick", store, workers=1)[0].met
    assert [run.label for run in store.runs()] == ["t/a:quick", "t/b:quick"]


def test_what_cannot_be_judged_is_not_met_and_the_rest_is_judged(store, monkeypatch):
    bad = experiment_of("t/bad", Failing(), 1)
    compared = RatioAtLeast(other="t/bad", series="square", ratio=1)
    e = experiment_of("t/a", Square(), 1, AtMost(series="square", value=9), compared)
    for module in (plan_module, results_module):
        monkeypatch.setattr(module, "experiment", {"t/bad": bad}.__getitem__)
    (assessment,) = run_experiments([e], "quick", store, workers=1)
    assert [verdict.holds for verdict in assessment.verdicts] == [True, False]
    assert "t/bad has not been run: `flattest run t/bad` does" in assessment.verdicts[1].sentence
    assert not assessment.met
    (assessment,) = run_experiments([e], "full", store, workers=1)
    assert "`flattest run t/bad --full` does" in assessment.verdicts[1].sentence


def test_a_failed_run_is_recorded_does_not_stop_the_others_and_is_tried_again(store):
    bad = experiment_of("t/bad", Failing(), 1)
    good = experiment_of("t/good", Square(), 1, AtMost(series="square", value=9))
    assessments = run_experiments([bad, good], "quick", store, workers=1)
    assert [j.met for j in assessments] == [False, True]
    (run,) = assessments[0].runs
    assert (run.status, run.sentence) == ("failed", "The width must be positive.")
    assert "in compute" in (run.folder / "failure.txt").read_text()
    assert len(plan([bad], "quick", store)) == 1


def test_every_run_that_is_over_leaves_one_line_and_what_was_over_before_none(store):
    def lines(seeds):
        console = Console(file=io.StringIO(), width=200)
        e = experiment_of("t/square", Square(), seeds, AtMost(series="square", value=9))
        run_experiments([e], "quick", store, workers=1, console=console)
        return sorted(line.split(" after")[0] for line in console.file.getvalue().splitlines())

    assert lines(2) == [f"t/square:quick seed {seed} finished" for seed in (0, 1)]
    assert lines(3) == ["t/square:quick seed 2 finished"]


def test_bars_show_runs_at_work_and_vanish(store):
    e = experiment_of("t/square", Square(), 1, AtMost(series="square", value=9))
    (job,) = plan([e], "quick", store)
    bars = Progress(console=Console(file=io.StringIO()))
    board = Board(store, {job.key: job}, bars)
    with store.lease(job.key) as lease:
        lease.progress(0.25, 1, {})
        board.look()
        assert [bar.completed for bar in bars.tasks] == [0.25, 0.25]
        lease.finish(Run(series={}))
    board.look()
    assert [(bar.description, bar.completed) for bar in bars.tasks] == [("1 runs", 1.0)]


def test_a_bar_says_that_it_compiles_and_estimates_only_what_it_has_seen(store):
    now = [0.0]
    bars, left = Progress(console=Console(file=io.StringIO())), Remaining(lambda: now[0])
    bar = bars.add_task("training", total=1.0, begins="compiling")

    def after(seconds, share):
        now[0] = seconds
        bars.update(bar, completed=share)
        return left.render(bars.tasks[0]).plain

    assert after(15, 0.0) == "compiling"
    assert after(20, 0.001) == ""  # 20 s for a thousandth: five hours, were it not the compiler's
    assert after(22, 0.2) == ""
    assert after(24, 0.401) == "0:00:06 left"
    assert after(30, 1.0) == ""


def test_a_bar_knows_what_its_run_begins_with(store):
    task = experiment("fig4b").quick.task
    e = Experiment(name="t/t", figure="", statement="", quick=Variant(task), full=Variant(task))
    (job, *_) = plan([e], "quick", store)
    bars = Progress(console=Console(file=io.StringIO()))
    board = Board(store, {job.key: job}, bars)
    with store.lease(job.key):
        board.look()
    assert bars.tasks[1].fields["begins"] == "compiling"


def test_a_full_disk_stops_everything_with_its_sentence(store, monkeypatch):
    def full(*_):
        raise StoreError("Cannot write: No space left on device.")

    e = experiment_of("t/square", Square(), 2)
    plan([e], "quick", store)
    monkeypatch.setattr("flattest.runs.lease.write_series", full)
    with pytest.raises(StoreError, match="No space left"):
        run_experiments([e], "quick", store, workers=1)


def test_a_result_does_not_depend_on_the_number_of_cores(store):
    e = experiment_of("t/threads", Threads(), 1, AtMost(series="threads", value=1, at="max"))
    with threadpool_limits(2):
        (assessment,) = run_experiments([e], "quick", store, workers=1)
    assert assessment.met, assessment.verdicts
    assert len(assessment.runs[0].series()["threads"]) > 0


@pytest.mark.slow
def test_workers_share_out_the_cores(store, monkeypatch):
    monkeypatch.setenv("FLATTEST_CORES", "5")
    e = experiment_of("t/threads", Threads(), 2, AtMost(series="threads", value=1, at="max"))
    (assessment,) = run_experiments([e], "quick", store, workers=2)
    assert assessment.met, assessment.verdicts
    assert [run.series()["cores"].tolist() for run in assessment.runs] == [[2], [2]]


def test_impossible_numbers_of_seeds_and_workers_are_refused(store):
    e = experiment_of("t/square", Square())
    with pytest.raises(FlattestError, match="seeds must be at least 1"):
        run_experiments([e], "quick", store, seeds=0)
    with pytest.raises(FlattestError, match="workers must be at least 1"):
        run_experiments([e], "quick", store, workers=0)


def test_an_unreachable_scheduler_is_one_sentence(store):
    with pytest.raises(FlattestError, match="No Dask scheduler answers at tcp://127.0.0.1:9"):
        connected("tcp://127.0.0.1:9", patience="1s")
    e = experiment_of("t/square", Square())
    with pytest.raises(FlattestError, match="No Dask scheduler answers at nowhere://x"):
        run_experiments([e], "quick", store, scheduler="nowhere://x")
    assert {run.status for run in store.runs()} == {"pending"}


def test_a_scheduler_that_exists_is_used(store):
    e = experiment_of("t/square", Square(), 3, AtMost(series="square", value=9))
    with LocalCluster(n_workers=1, threads_per_worker=2, processes=False, **QUIET) as cluster:
        (assessment,) = run_experiments([e], "quick", store, scheduler=cluster.scheduler_address)
    assert assessment.met
    assert [run.status for run in assessment.runs] == ["finished"] * 3


def test_a_cluster_without_workers_is_one_sentence_and_what_is_done_is_kept(store, monkeypatch):
    monkeypatch.setattr(cluster_module, "PATIENCE", 0.5)
    one = experiment_of("t/square", Square(), 1, AtMost(series="square", value=9))
    run_experiments([one], "quick", store, workers=1)
    two = experiment_of("t/square", Square(), 2, AtMost(series="square", value=9))
    console = Console(file=io.StringIO(), width=200)
    with (
        LocalCluster(n_workers=0, processes=False, **QUIET) as cluster,
        pytest.raises(FlattestError, match="No worker has been left for 0 s. What is done is kept"),
    ):
        run_experiments([two], "quick", store, scheduler=cluster.scheduler_address, console=console)
    assert "No worker is left; waiting" in console.file.getvalue()
    assert [run.status for run in store.runs()] == ["finished", "pending"]


CLUSTER = """
from distributed import LocalCluster
if __name__ == "__main__":
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "protocol": "tcp"}
    cluster = LocalCluster(dashboard_address="127.0.0.1:0", **options)
    print(cluster.scheduler_address, flush=True)
    input()
"""


def test_a_scheduler_that_goes_before_it_has_the_users_file_is_one_sentence(tmp_path):
    class Gone:
        scheduler = SimpleNamespace(address="tcp://there:1")

        def register_plugin(self, plugin):
            raise CommClosedError("Stream is closed")

    (tmp_path / "lab.py").touch()
    with pytest.raises(FlattestError, match="The Dask scheduler at tcp://there:1 is gone"):
        send(Reference(tmp_path / "lab.py", "setup"), Gone())


@pytest.mark.slow
def test_a_scheduler_that_is_killed_is_one_sentence_and_calling_again_goes_on(
    tmp_path, store, capfd
):
    e = walk(tmp_path, waits=5)
    command = [sys.executable, "-c", CLUSTER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=ENVIRONMENT, text=True, **pipes) as process:

        def kill():
            wait_for(lambda: any(run.step == 5 for run in store.runs()))
            process.kill()

        address, killer = process.stdout.readline().strip(), threading.Thread(target=kill)
        killer.start()
        with pytest.raises(FlattestError, match=f"The Dask scheduler at {address} is gone. What"):
            run_experiments([e], "quick", store, scheduler=address)
        killer.join()
    assert "Traceback" not in capfd.readouterr().err
    (tmp_path / "open").touch()
    run_experiments([e], "quick", store, workers=1)
    assert_each_step_was_taken_once_with_the_same_result(tmp_path, e)


def test_a_job_that_workers_cannot_read_is_one_sentence(monkeypatch):
    with pytest.raises(Unreadable, match="No module named 'nowhere'"):
        _unpacked(None, None, b"cnowhere\nthing\n.")


def test_lost_workers_are_replaced_a_few_times(store, monkeypatch):
    said, rounds = [], []

    def lose(*_):
        rounds.append(1)
        raise WorkersLost("No worker.")

    monkeypatch.setattr(work_module, "cluster", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(work_module, "on_cluster", lose)
    jobs = plan([experiment_of("t/square", Square(), 2)], "quick", store)
    with pytest.raises(WorkersLost):
        do(jobs, store, 2, None, say=said.append)
    assert len(rounds) == 3
    assert said[-1] == "The workers are lost; starting others (2 of 2)."


@pytest.mark.slow
def test_a_job_at_which_workers_keep_dying_is_given_up_after_the_others(store):
    e = experiment_of("t/deadly", Deadly(), 2)
    with pytest.raises(FlattestError, match="workers in a row died at t/deadly|No worker has been"):
        run_experiments([e], "quick", store, workers=2)
    assert store.runs()[0].status == "finished"


def test_who_waits_for_another_process_says_for_whom(store):
    (job,) = plan([experiment_of("t/square", Square(), 1)], "quick", store)
    said, rounds = [], iter([[(job, False)], [(job, True)]])
    with store.lease(job.key):
        until_done([job], store, lambda _: next(rounds), said.append)
    (sentence,) = said
    assert f"t/square:quick seed 0 is in the hands of process {os.getpid()}" in sentence


def test_a_killed_runner_resumes_where_it_was(tmp_path):
    for expected in (-signal.SIGKILL, 0):
        assert start(tmp_path, workers=1, dies=10).wait(180) == expected
    assert_each_step_was_taken_once_with_the_same_result(tmp_path, walk(tmp_path, dies=10))


@pytest.mark.slow
def test_a_killed_worker_loses_nothing(tmp_path, store):
    e = walk(tmp_path, dies=10)
    run_experiments([e], "quick", store, workers=2)
    assert (tmp_path / "died").exists()
    assert_each_step_was_taken_once_with_the_same_result(tmp_path, e)


def test_a_runner_killed_with_its_workers_at_work_leaves_nothing_behind(tmp_path, store):
    e = walk(tmp_path, waits=5)
    process = start(tmp_path, workers=2, waits=5)
    wait_for(lambda: sum(run.step == 5 for run in store.runs()) == 2)
    process.kill()
    process.wait(60)
    wait_for(lambda: not any(run.status == "running" for run in store.runs()))
    assert sorted(run.status for run in store.runs()) == ["interrupted", "interrupted", "pending"]
    (tmp_path / "open").touch()
    run_experiments([e], "quick", store, workers=1)
    assert_each_step_was_taken_once_with_the_same_result(tmp_path, e)


def test_two_runners_on_one_store_share_the_work(tmp_path, store):
    e = walk(tmp_path, waits=5)
    pair = [start(tmp_path, workers=1, waits=5) for _ in range(2)]
    wait_for(lambda: sum(run.step == 5 for run in store.runs()) == 2)
    (tmp_path / "open").touch()
    assert [process.wait(180) for process in pair] == [0, 0]
    assert_each_step_was_taken_once_with_the_same_result(tmp_path, e)


def wait_for(condition, seconds=120):
    deadline = time.time() + seconds
    while not condition():
        assert time.time() < deadline, "waited in vain"
        time.sleep(0.05)
