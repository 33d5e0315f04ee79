"""What describes a problem is there at once: JAX and SciPy are imported where they are used."""

import subprocess
import sys
from pathlib import Path

import flattest

SOURCE = Path(flattest.__file__).parent
LIGHT = [
    "problem/*.py",
    "stability/*.py",
    "flatness/bounds.py",
    "flatness/certification.py",
    "flatness/constructions.py",
    "flatness/convex/*.py",
    "flatness/extreme.py",
    "flatness/interpolators.py",
    "rescaling/orbit.py",
    "papers/wen2023/constructions.py",
    "cli/certify.py",
    "cli/construct.py",
    "cli/flattest.py",
    "cli/range.py",
    "cli/interpolate.py",
]
# Compiled, and imported where it is used.
LATE = ["__init__", "nodes"]
SCRIPT = """
import importlib, sys
for module in sys.argv[1:]:
    importlib.import_module(module)
from flattest.problem.distributions import xor
from flattest.problem.models import MLP
MLP(3, bias=True, activation="leaky_relu:0.1").init(2, 0), xor(n=4, d=3)
print(*{"jax", "scipy"} & set(sys.modules))
"""


def test_light_modules_import_neither_jax_nor_scipy():
    files = [path for pattern in LIGHT for path in SOURCE.glob(pattern) if path.stem not in LATE]
    modules = [".".join(path.relative_to(SOURCE.parent).with_suffix("").parts) for path in files]
    assert "flattest.problem.models" in modules
    command = [sys.executable, "-c", SCRIPT, *modules]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ""
