"""Attack the papers' statements about all instances at length, and keep the closest instances.

Every such statement is attacked for a moment by `flattest verify`. This goes on for as long as is
asked, each time from the closest instance known, and writes the closest it finds to `attacks.json`
in the paper's folder, where `verify` measures it again. What is found of one statement is kept
before the next begins. The exit code is 1 when a statement is broken.

Examples:

    flattest attack theorem-4.1                       a minute
    flattest attack 'mulayoff2021/*' --minutes 5      five minutes for each
    flattest attack lemma-a.25 --afresh               from nothing, the instance known forgotten
"""

from typing import Annotated

import tyro
from rich.markup import escape

from flattest.cli._options import console
from flattest.errors import FlattestError
from flattest.evidence import Attack
from flattest.ledger.adversary import METHOD, Attacked, keep, known
from flattest.ledger.claim import ledger


def command(
    pattern: Annotated[
        str,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="PATTERN", help="Part of a name, or a pattern such as '*lemma-a*'."),
    ] = "*",
    minutes: Annotated[float, tyro.conf.arg(help="For each statement.")] = 1.0,
    afresh: Annotated[bool, tyro.conf.arg(help="Forget the instance that is known.")] = False,
) -> int:
    checks = [entry.check for entry in ledger(pattern) if isinstance(entry.check, Attacked)]
    if not checks:
        raise FlattestError(f"No claim that matches {pattern!r} is about all instances.")
    met = [attacked(check, 60 * minutes, afresh) for check in checks]
    return 0 if all(met) else 1


def attacked(check: Attacked, seconds: float, afresh: bool) -> bool:
    """Keeps the closest instance found, and says whether the statement stands."""
    found = check.at_length(seconds, None if afresh else known(check.id))
    keep(found)
    attack = Attack(METHOD, found.instances, found.measure)
    verdict = check.target.verdict(attack, f"{check.id}, {found.family}")
    console().print(escape(f"{verdict}; {attack}"))
    return verdict.holds
