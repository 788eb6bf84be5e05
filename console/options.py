"""The global options of a call, and where they may stand."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from ..schemas.errors import UsageError
from ..schemas.masking import is_url
from .output import Output

if TYPE_CHECKING:
    from ..recovery.permissions import Actor

#: Most characters of a role.
LONGEST_ROLE = 200
_FLAGS = frozenset({"--json", "--yes"})
_VALUES = frozenset({"--database", "--app", "--as"})


def hoist(words: Sequence[str]) -> list[str]:
    """Move global options that stand after the command to its front.

    Args:
        words: The command line without the program's name.

    Returns:
        The same words; what follows a bare `--` stays where it is.
    """
    front: list[str] = []
    rest: list[str] = []
    pending = list(words)
    while pending:
        word = pending.pop(0)
        if word == "--":
            return front + rest + [word, *pending]
        if word in _VALUES and pending:
            front += [word, pending.pop(0)]
        elif word in _FLAGS or ("=" in word and word.partition("=")[0] in _VALUES):
            front.append(word)
        else:
            rest.append(word)
    return front + rest


@dataclass(frozen=True)
class Globals:
    """What the global options said.

    Attributes:
        database: --database, if given.
        app: --app, if given.
        acting: --as, if given.
        yes: --yes: change what was counted without asking.
    """

    out: Output
    database: str | None = None
    app: str | None = None
    acting: str | None = None
    yes: bool = False

    def by(self) -> str:
        """Return who acts, for the audit: --as, else MILEPOST_AS, else the user of this machine."""
        return self.acting or os.environ.get("MILEPOST_AS") or getpass.getuser()

    def actor(self) -> Actor:
        """Return who acts, with what is granted to people at the command line: MILEPOST_GRANTS, else everything.

        Whoever can run this command can read the database itself; MILEPOST_GRANTS is for a machine that hands a smaller
        command line to people. Names of roles, comma-separated: viewer, operator, approver, admin.

        Raises:
            UsageError: MP663 for a role that there is not.
        """
        from ..recovery.permissions import Actor, ActorKind, Grant, Role

        text = os.environ.get("MILEPOST_GRANTS", "operator,approver,admin")
        named = [one.strip().upper() for one in text.split(",") if one.strip()]
        known = [role.value for role in Role if role is not Role.AGENT]
        for one in named:
            if one not in known:
                words = ", ".join(known).lower()
                raise UsageError(
                    "MP663", f"MILEPOST_GRANTS: there is no role {one.lower()}. There are: {words}."
                )
        return Actor(self.by().strip(), ActorKind.PERSON, tuple(Grant(Role(one)) for one in named))

    def roles(self, named: Sequence[str]) -> frozenset[str]:
        """Return the roles that whoever acts claims: --role, else those of MILEPOST_ROLES, comma-separated.

        Nobody checks here that the person has them.

        Raises:
            UsageError: MP644 for one that is empty or too long.
        """
        source = "--role" if named else "MILEPOST_ROLES"
        found = list(named) or [one for one in os.environ.get("MILEPOST_ROLES", "").split(",") if one.strip()]
        for role in found:
            if not role.strip() or len(role) > LONGEST_ROLE:
                raise UsageError(
                    "MP644",
                    f"{source}: {role[:20]!r} is no role. Name one as the approval does, of 1 to {LONGEST_ROLE} "
                    "characters.",
                )
        return frozenset(role.strip() for role in found)

    def confirm(self, question: str) -> None:
        """Ask a person before something is changed; --yes answers.

        Raises:
            UsageError: MP426 when nobody can be asked.
            typer.Exit: The answer was no.
        """
        if self.yes:
            return
        if self.out.as_json or not sys.stdin.isatty():
            raise UsageError("MP426", f"{question} Nobody can be asked here: say --yes. Nothing was changed.")
        if not typer.confirm(question, err=True):
            raise typer.Exit

    def database_url(self) -> str:
        """Return the database as asyncpg takes it.

        Raises:
            UsageError: MP602 when neither the option nor MILEPOST_DATABASE_URL names one, or it is no PostgreSQL.
        """
        found = self.database or os.environ.get("MILEPOST_DATABASE_URL")
        if not found:
            raise UsageError(
                "MP602",
                "no database is named. Give --database postgresql://…, or set MILEPOST_DATABASE_URL; "
                "`milepost dev` starts one and prints that line.",
            )
        scheme, _, rest = found.partition("://")
        place = "--database" if self.database else "MILEPOST_DATABASE_URL"
        if not rest or scheme.partition("+")[0] not in {"postgresql", "postgres"}:
            what = f"begins with {scheme}://" if rest else "is no URL"
            raise UsageError(
                "MP602", f"{place} {what}, and Milepost needs PostgreSQL: postgresql://user@host:port/name."
            )
        if not is_url(f"postgresql://{rest}"):
            raise UsageError(
                "MP602",
                f"{place} cannot be read as postgresql://user:password@host:port/name. A password with one of : / ? # "
                "@ % in it is written with %3A %2F %3F %23 %40 %25.",
            )
        return f"postgresql://{rest}"

    def to_environment(self) -> None:
        """Let the application, which reads its settings from the environment, see --database too."""
        if self.database:
            os.environ["MILEPOST_DATABASE_URL"] = self.database_url()


def given(context: typer.Context) -> Globals:
    """Return the global options of a command's context."""
    found = context.obj
    assert isinstance(found, Globals)
    return found


def print_help(context: typer.Context) -> None:
    """Print a group's help; some versions of Typer print it themselves and return nothing."""
    text = context.get_help()
    if text:
        print(text)
    raise typer.Exit
