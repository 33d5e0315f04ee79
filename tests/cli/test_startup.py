"""A help text is there at once: what a command imports before there is work to do."""

import json
import subprocess
import sys

import pytest

from flattest.cli import _dispatch as cli
from support.places import ENVIRONMENT

HEAVY = {"jax", "jaxlib", "scipy", "matplotlib", "numba", "distributed", "torch"}
CASES = {" ".join(words): words for words in (["--help"], ["list"])}
CASES |= {f"{name} --help": [name, "--help"] for name in cli.commands()}
# One process forks for every case, so that Python, tyro and rich are imported once.
IMPORTED_BY = """
import json, os, sys

def imported(arguments):
    from flattest.cli._dispatch import main
    sys.stdout = open(os.devnull, "w")
    try:
        main(arguments)
    except SystemExit:
        pass
    return sorted({name.partition(".")[0] for name in sys.modules})

import flattest
found = {"import flattest": sorted({name.partition(".")[0] for name in sys.modules})}
import flattest.cli, rich.table, tyro
for name, arguments in json.loads(sys.argv[1]).items():
    out, into = os.pipe()
    if os.fork() == 0:
        os.write(into, json.dumps(imported(arguments)).encode())
        os._exit(0)
    os.close(into)
    with open(out) as pipe:
        found[name] = json.load(pipe)
    os.wait()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def imported():
    """The top-level modules that are there after each case."""
    command = [sys.executable, "-c", IMPORTED_BY, json.dumps(CASES)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    return {name: set(modules) for name, modules in json.loads(done.stdout).items()}


@pytest.mark.parametrize("case", CASES)
def test_help_and_lists_import_nothing_heavy(imported, case):
    assert not imported[case] & HEAVY
    assert "tyro" in imported[case]


def test_importing_the_package_imports_the_standard_library_alone(imported):
    extra = imported["import flattest"] - set(sys.stdlib_module_names) - {"__main__", "flattest"}
    # What an editable installation or the environment puts in at Python's start is not ours.
    bare = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True
    )
    assert not extra - {name.partition(".")[0] for name in bare.stdout.split()}
