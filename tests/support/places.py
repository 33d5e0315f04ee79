"""Where the checkout is, and an environment in which another process finds it and `support`."""

import os
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
SOURCE = ROOT / "src"
ENVIRONMENT = os.environ | {"PYTHONPATH": f"{SOURCE}{os.pathsep}{TESTS}"}
