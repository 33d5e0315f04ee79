"""The command line, called in this process."""

from flattest.cli import _dispatch as cli


def flattest(capsys, *arguments):
    """Exit code, standard output, standard error."""
    try:
        code = cli.main(arguments)
    except SystemExit as stop:
        code = stop.code or 0
    out, err = capsys.readouterr()
    return code, out, err
