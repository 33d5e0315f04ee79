"""The command `flattest`. Each module beside this one is a command.

A command `name` is the module `flattest/cli/name.py`, with a docstring (its first line is the
summary, the rest teaches with examples) and a function `command`, whose parameters are the
arguments (tyro reads them) and which returns the exit code: 0 for expectations met (or nothing,
where none are checked), 1 for not met. A FlattestError becomes one sentence and exit code 2.
Modules are imported when they are called.
"""
