"""The suite's own rules."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SKIPS = {
    "at_run_time": "import pytest\ndef test_a():\n    pytest.skip('no browser')\n",
    "at_import": "import pytest\npytest.importorskip('no_such_module')\ndef test_a():\n    pass\n",
}


@pytest.mark.parametrize("source", SKIPS.values(), ids=SKIPS)
def test_a_skip_fails_where_nothing_may_be_skipped(cwd, source):
    (cwd / "conftest.py").write_text(Path(__file__).with_name("conftest.py").read_text())
    (cwd / "test_one.py").write_text(source)
    (cwd / "pytest.ini").touch()

    def run(**extra):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_one.py"]
        return subprocess.run(command, env=os.environ | extra, capture_output=True, text=True)

    assert "1 skipped" in run(FLATTEST_NO_SKIPS="").stdout
    strict = run(FLATTEST_NO_SKIPS="1")
    assert strict.returncode != 0
    assert "skipped where nothing may be" in strict.stdout


def test_home_and_working_directory_are_temporary(home, cwd, tmp_path):
    assert Path.home() == home
    assert Path.cwd() == cwd
    assert cwd.is_relative_to(tmp_path)
