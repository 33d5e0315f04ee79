"""Every test runs with a home and a working directory of its own."""

import pytest


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
