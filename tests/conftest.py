"""Every test runs with a home and a working directory of its own.

The processes of one session, and those that tests start, share what JAX has compiled: compiling
takes most of the suite's time, and the same programs come up again and again.

Hypothesis draws the same examples at every run.

With FLATTEST_NO_SKIPS set (`make test-extras`), a test that would be skipped fails instead.
"""

import os
import shutil
import tempfile

import pytest
from hypothesis import settings

settings.register_profile("same examples", derandomize=True)
settings.load_profile("same examples")

COMPILED = pytest.StashKey[str]()


def pytest_configure(config):
    if hasattr(config, "workerinput"):
        return
    config.stash[COMPILED] = tempfile.mkdtemp(prefix="flattest-compiled-")
    os.environ |= {
        "JAX_COMPILATION_CACHE_DIR": config.stash[COMPILED],
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.05",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def pytest_unconfigure(config):
    if COMPILED in config.stash:
        shutil.rmtree(config.stash[COMPILED], ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    return _fail_if_skipped((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return _fail_if_skipped((yield))


def _fail_if_skipped(report):
    if report.skipped and os.environ.get("FLATTEST_NO_SKIPS"):
        report.outcome = "failed"
        report.longrepr = f"skipped where nothing may be: {report.longrepr}"
    return report


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A temporary HOME, so that no test reads or writes the user's."""
    path = tmp_path / "home"
    path.mkdir()
    monkeypatch.setenv("HOME", str(path))
    return path


@pytest.fixture(autouse=True)
def cwd(tmp_path, monkeypatch):
    """A temporary working directory."""
    path = tmp_path / "cwd"
    path.mkdir()
    monkeypatch.chdir(path)
    return path
