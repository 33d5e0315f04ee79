"""What describes a problem is there at once: no module of it imports JAX or SciPy."""

import subprocess
import sys
from pathlib import Path

from flattest import problem

SCRIPT = """
import importlib, sys
for module in sys.argv[1:]:
    importlib.import_module(f"flattest.problem.{module}")
from flattest.problem.data import xor
from flattest.problem.models import MLP
MLP(3, bias=True, activation="leaky_relu:0.1").init(2, 0), xor(n=4, d=3)
print(*{"jax", "scipy"} & set(sys.modules))
"""


def test_the_modules_of_a_problem_import_neither_jax_nor_scipy():
    modules = [path.stem for path in Path(problem.__file__).parent.glob("[!_]*.py")]
    assert "models" in modules
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *modules], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == ""
