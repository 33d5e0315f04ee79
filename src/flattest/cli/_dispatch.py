"""Finds the command that is meant, calls it and turns errors into exit codes."""

import ast
import importlib
import io
import os
import pkgutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from flattest.errors import FlattestError, require_known, unknown, visible

HERE = Path(__file__).parent
GROUPS = {
    "reproduce the papers": ("table1", "list", "run", "verify", "attack"),
    "ask about your own network": (
        "judge",
        "sweep",
        "measure",
        "compare",
        "example",
        "construct",
        "certify",
        "interpolate",
        "flattest",
        "range",
    ),
    "look at what was run": ("status", "show", "summary", "plot", "report", "serve", "export"),
    "compare with peers": ("bench",),
}
# Modules whose docstrings are for readers of the command line too.
TOPICS = {
    "evidence": "evidence.py",
    "experiments": "experiments/experiment.py",
    "papers": "experiments/registry.py",
    "questions": "runs/questions.py",
    "runs": "runs/folder.py",
    "scenarios": "lab/scenario.py",
    "setups": "lab/setup.py",
}
KEEPING_RUNS = ("table1", "run", "judge", "sweep")
KEPT = "; finished runs are kept, and training goes on from its last checkpoint"
OVERVIEW = """\
usage: flattest COMMAND [ARGUMENTS]

Are the flattest minima the ones that generalize, and does the algorithm find them?

{commands}

  flattest COMMAND --help                 teaches a command, with examples
  flattest help TOPIC                     explains {topics}
  flattest --tyro-print-completion bash   prints a completion script (also zsh, tcsh)

exit codes: 0 expectations met, 1 not met, 2 bad input"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    make_streams_writable()
    try:
        try:
            return dispatch(arguments)
        finally:
            sys.stdout.flush()
    except FlattestError as error:
        print(f"flattest: {visible(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        kept = KEPT if set(arguments[:1]) & set(KEEPING_RUNS) else ""
        print(f"flattest: Interrupted{kept}.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Nobody reads the rest of the output, `head` say.
        give_up_output()
        return 0
    except OSError as error:
        # Of a stream, as on a full disk; files have a name, connections a class of their own.
        if type(error) is not OSError or error.filename is not None:
            raise
        give_up_output()
        print(f"flattest: Cannot write the output: {error.strerror or error}.", file=sys.stderr)
        return 2


def make_streams_writable() -> None:
    """A letter that the terminal's encoding lacks becomes "?"; a closed stream takes anything."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            setattr(sys, name, os.fdopen(nowhere, "w", encoding="utf-8"))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def give_up_output() -> None:
    """Keep Python from complaining when it flushes what could not be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def dispatch(arguments: list[str]) -> int:
    name, *rest = arguments or ["--help"]
    if name in commands():
        return call(name, rest)
    if name.startswith("--tyro-"):
        return complete(arguments)
    if name == "help" and rest:
        return explain(rest[0])
    if name not in ("-h", "--help", "help", "--version"):
        raise unknown("command", name, commands())
    about = OVERVIEW.format(commands=overview(), topics=", ".join(TOPICS))
    print(version() if name == "--version" else about)
    return 0


def explain(topic: str) -> int:
    """Print what a command or a topic is about."""
    if topic in commands():
        return call(topic, ["--help"])
    require_known("topic", topic, [*TOPICS, *commands()])
    print(docstring(HERE.parent / TOPICS[topic]))
    return 0


def call(name: str, arguments: list[str]) -> int:
    from flattest.cli._help import parsed

    return parsed(name, load(name), arguments)() or 0


def complete(arguments: list[str]) -> int:
    """Completion needs every command's arguments, so here all are imported."""
    import tyro

    from flattest.cli._help import told

    tyro.extras.subcommand_cli_from_dict(
        {name: told(load(name)) for name in commands()},
        prog="flattest",
        args=arguments,
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    return 0


def load(name: str) -> Callable[..., int | None]:
    return importlib.import_module(f"flattest.cli.{name}").command


def commands() -> list[str]:
    """The commands there are."""
    return [m.name for m in pkgutil.iter_modules([str(HERE)]) if not m.name.startswith("_")]


def overview() -> str:
    """Each command with its summary, by what one wants to do."""
    return "\n\n".join(
        "\n".join([f"{purpose}:", *(f"  {name:<12}{summary(name)}" for name in names)])
        for purpose, names in GROUPS.items()
    )


def summary(name: str) -> str:
    """The first line of a command's docstring."""
    return docstring(HERE / f"{name}.py").partition("\n")[0]


def docstring(path: Path) -> str:
    """What a module says of itself, read from its source without importing it."""
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def version() -> str:
    from flattest.runs.provenance import provenance

    made = provenance()
    commit = f" (commit {made.commit[:12]})" if made.commit else ""
    return f"flattest {made.versions['flattest']}{commit}"
