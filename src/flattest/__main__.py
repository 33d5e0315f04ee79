"""`python -m flattest` is `flattest`."""

import sys

from flattest.cli._dispatch import main

if __name__ == "__main__":
    sys.exit(main())
