"""The source papers, a folder each: experiments, figures, constructions, claims.

The folders in directories that FLATTEST_PAPERS names are papers too. They are found from here, so
that a worker that is sent a task of theirs can import it.
"""

import os

__path__ += filter(None, os.environ.get("FLATTEST_PAPERS", "").split(os.pathsep))
