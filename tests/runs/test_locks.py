"""Nobody waits in silence, or for ever, for a process that was stopped inside a write."""

import os
import signal
import subprocess
import sys

import pytest

from flattest.cli._dispatch import main
from flattest.experiments.registry import experiment
from flattest.report.document import render
from flattest.report.kept import NAME
from flattest.report.reader import gather
from flattest.runs import locks
from flattest.runs.index import Index
from flattest.runs.locks import Locked
from flattest.runs.store import Store
from flattest.training.run import Run
from support.tasks import Square

WRITING = """
db = sqlite3.connect(sys.argv[1] + "/index.sqlite", isolation_level=None)
db.execute("BEGIN IMMEDIATE")
db.execute("UPDATE runs SET progress = progress")
"""
# As SQLite has it when the last connection is closed, and the log is brought into the database.
CLOSING = """
db = sqlite3.connect(sys.argv[1] + "/index.sqlite", isolation_level=None)
db.execute("PRAGMA locking_mode=EXCLUSIVE")
db.execute("BEGIN IMMEDIATE")
"""
MAKING = """
handle = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(handle, fcntl.LOCK_EX)
"""
KEEPING_VIEWS = """
db = sqlite3.connect(sys.argv[1] + "/page.sqlite", isolation_level=None)
db.execute("BEGIN EXCLUSIVE")
"""
FIRST, LAST = "import fcntl, os, signal, sqlite3, sys\n", "os.kill(os.getpid(), signal.SIGSTOP)\n"


@pytest.fixture
def store(tmp_path):
    store = Store.create(tmp_path / "store")
    task = experiment("wen2023/fig3").quick.task
    with store.lease(store.add(task, 0, "wen2023/fig3:quick")) as lease:
        series = {"covered": [0.1], "interpolation_error": [0.0], "excess": [0.0]}
        lease.finish(Run(series=series))
    return store


@pytest.fixture
def stopped(store):
    """Starts a process that stops, as by Ctrl-Z, with something of the store locked."""
    processes = []

    def start(code):
        process = subprocess.Popen([sys.executable, "-c", FIRST + code + LAST, str(store.root)])
        processes.append(process)
        assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture
def hasty(monkeypatch):
    monkeypatch.setattr(locks, "SILENT", 0.1)
    monkeypatch.setattr(locks, "PATIENCE", 0.5)


ACTIONS = {
    "reading": (CLOSING, lambda store: store.runs()),
    "asking": (WRITING, lambda store: store.add(Square(), 1, "own/squares")),
    "opening": (CLOSING, lambda store: Store.open(store.root)),
    "making": (MAKING, lambda store: Index.create(store.root / "index.sqlite")),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_who_is_waited_for_is_said_and_then_what_helps(store, stopped, hasty, action, capfd):
    code, act = ACTIONS[action]
    pid = stopped(code).pid
    with pytest.raises(Locked, match=f"process {pid} .*stopped: `kill -CONT {pid}` lets it go on"):
        act(store)
    said = capfd.readouterr().err
    assert said.startswith("Waiting for at most 0 s more: ")
    assert f"is locked by process {pid} (`{sys.executable} -c" in said


def test_who_is_let_go_on_ends_the_wait(store, stopped, monkeypatch, capfd):
    monkeypatch.setattr(locks, "SILENT", 0.1)
    process, real = stopped(WRITING), locks.time.sleep

    def wake(seconds):
        """As the user does who reads the sentence."""
        if "Waiting for" in capfd.readouterr().err:
            process.send_signal(signal.SIGCONT)
        real(seconds)

    monkeypatch.setattr(locks.time, "sleep", wake)
    store.add(Square(), 1, "own/squares")
    assert {run.seed for run in store.runs()} == {0, 1}


@pytest.mark.parametrize("command", ["status", "summary", "report"])
def test_listings_do_not_wait_for_who_was_stopped_inside_a_write(
    store, stopped, hasty, command, tmp_path, monkeypatch, capfd
):
    """They look at a run that has changed, and do not note it now for the next one. Whoever waits
    says so, and ends with another code: the process is not let go on."""
    monkeypatch.chdir(tmp_path)
    os.utime(store.runs()[0].folder / "record.json")
    stopped(WRITING)
    assert main([command, "--store", str(store.root)]) == 0
    assert capfd.readouterr().err == ""


def test_a_page_is_made_without_the_kept_views_that_another_has_locked(store, stopped, monkeypatch):
    monkeypatch.setattr("flattest.report.reader.MANY", 0)
    first = render(gather(store))
    kept = (store.root / NAME).read_bytes()
    stopped(KEEPING_VIEWS)
    assert render(gather(store)) == first
    assert (store.root / NAME).read_bytes() == kept


def test_locks_of_a_process_that_the_system_does_not_name_are_those_of_another(store, monkeypatch):
    monkeypatch.setattr(locks, "holders", lambda path: [])
    assert locks.holder(store.root) == "another process: wait until it is done, or end it"


def test_a_process_that_is_at_work_is_not_said_to_be_stopped(store, stopped):
    process = stopped("")
    assert locks.is_stopped(process.pid)
    assert not locks.is_stopped(os.getpid())
