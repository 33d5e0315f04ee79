"""The suite's own rules."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

AT_RUN_TIME = "import pytest\ndef test_a():\n    pytest.skip('no browser')\n"
AT_IMPORT = "import pytest\npytest.importorskip('no_such_module')\ndef test_a():\n    pass\n"


@pytest.mark.slow
def test_a_skip_fails_where_nothing_may_be_skipped(cwd):
    (cwd / "conftest.py").write_text(Path(__file__).with_name("conftest.py").read_text())
    (cwd / "test_one.py").write_text(AT_RUN_TIME)
    (cwd / "test_two.py").write_text(AT_IMPORT)
    (cwd / "pytest.ini").touch()

    def run(**extra):
        command = [sys.executable, "-m", "pytest", "-q", "--continue-on-collection-errors"]
        return subprocess.run(command, env=os.environ | extra, capture_output=True, text=True)

    lenient, strict = run(FLATTEST_NO_SKIPS=""), run(FLATTEST_NO_SKIPS="1")
    assert "2 skipped" in lenient.stdout
    assert strict.returncode != 0
    assert "1 failed, 1 error" in strict.stdout
    assert strict.stdout.count("skipped where nothing may be") >= 2


def test_home_and_working_directory_are_temporary(home, cwd, tmp_path):
    assert Path.home() == home
    assert Path.cwd() == cwd
    assert cwd.is_relative_to(tmp_path)
