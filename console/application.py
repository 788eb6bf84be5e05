"""Finding the user's application, and what its definitions add to what the database knows."""

from __future__ import annotations

import importlib
import os
import sys
import tomllib
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from ..schemas.errors import MilepostError, StartError, UsageError
from .model import Plan
from .options import Globals

if TYPE_CHECKING:
    from ..consumers.app import Milepost
    from ..sagas.definition import Definition


def app_name(given: Globals) -> str | None:
    """Return what names the app: --app, else MILEPOST_APP, else [tool.milepost] app in ./pyproject.toml.

    Raises:
        UsageError: MP603 when ./pyproject.toml cannot be read.
    """
    return given.app or os.environ.get("MILEPOST_APP") or _from_pyproject(Path("pyproject.toml"))


def _from_pyproject(path: Path) -> str | None:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("milepost", {})
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UsageError(
            "MP603", f"./pyproject.toml cannot be read: {error}. Mend it, or give --app."
        ) from error
    found = table.get("app")
    if found is not None and not isinstance(found, str):
        raise UsageError(
            "MP603", '[tool.milepost] app in ./pyproject.toml is no text. Write app = "module:attribute".'
        )
    return found


def named_app(given: Globals) -> str:
    """Return what names the app.

    Raises:
        UsageError: MP603 when nothing does.
    """
    found = app_name(given)
    if found is None:
        raise UsageError(
            "MP603",
            "no application is named. Give --app module:attribute, set MILEPOST_APP, or write "
            'app = "module:attribute" under [tool.milepost] in ./pyproject.toml.',
        )
    return found


def load_app(given: Globals) -> Milepost:
    """Import the application.

    Returns:
        The Milepost object that --app names.

    Raises:
        UsageError: MP603 when none is named.
        StartError: MP609 when it cannot be imported or is no Milepost object.
        MilepostError: What its own declarations raise, such as MP101.
    """
    from ..consumers.app import Milepost

    name = named_app(given)
    given.to_environment()
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise UsageError("MP603", f"the application {name!r} is not written as module:attribute.")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: object = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except MilepostError as error:
        need_database(given, error)
        raise
    except Exception as error:
        raise StartError(
            "MP609",
            f"the application {name} cannot be loaded: {type(error).__name__}: {error}. "
            + (suggestion(module_name, attribute) or _place(error)),
        ) from error
    except SystemExit as error:
        raise StartError(
            "MP609", f"the application {name} cannot be loaded: its import ends the process."
        ) from error
    if not isinstance(found, Milepost):
        raise StartError(
            "MP609",
            f"the application {name} is {type(found).__name__}, not a Milepost(...) object. "
            f"{suggestion(module_name, attribute)}".rstrip(),
        )
    return found


def need_database(given: Globals, error: MilepostError) -> None:
    """Where settings cannot be read because no database is named, say that, as every other command does.

    Raises:
        UsageError: MP602.
    """
    if error.code == "MP203" and "MILEPOST_DATABASE_URL" in error.text:
        given.database_url()


def suggestion(module_name: str, attribute: str) -> str:
    """Say what was probably meant by an application's name; '' when nothing is like it."""
    module = sys.modules.get(module_name)
    if module is None:
        near = get_close_matches(module_name, _modules(module_name.count(".")), 3)
        return _did_you_mean([f"{close}:{attribute}" for close in near if close != module_name])
    if hasattr(module, attribute.partition(".")[0]) and "." in attribute:
        return ""
    from ..consumers.app import Milepost

    apps = [name for name, value in vars(module).items() if isinstance(value, Milepost)]
    near = apps or get_close_matches(attribute, list(vars(module)), 3)
    return _did_you_mean([f"{module_name}:{close}" for close in near])


def _modules(depth: int) -> list[str]:
    """Return the names of the modules in this folder, and so many folders below it."""
    here, found = Path.cwd(), set[str]()
    for level in range(depth + 1):
        for file in ("*.py", "*/__init__.py"):
            for path in here.glob("*/" * level + file):
                parts = path.relative_to(here).with_suffix("").parts
                parts = parts[:-1] if parts[-1] == "__init__" else parts
                if parts and all(part.isidentifier() for part in parts):
                    found.add(".".join(parts))
    return sorted(found)


def _did_you_mean(names: Sequence[str]) -> str:
    return f"Did you mean {' or '.join(names)}?" if names else ""


def _place(error: BaseException) -> str:
    """Say in which line of the user's code an import failed: the innermost frame that is no library's."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        library = "site-packages" in file or file.startswith(("<", sys.base_prefix)) or file == __file__
        if not library:
            place = f"It happened in {file}, line {trace.tb_lineno}."
        trace = trace.tb_next
    return place or "Check that it can be imported from this folder."


def optional_app(given: Globals) -> Milepost | None:
    """Import the application for a command that can do without it.

    Returns:
        The application; None where none is named, or where the named one cannot be loaded, which is then
        remarked on stderr.
    """
    try:
        return load_app(given) if app_name(given) is not None else None
    except MilepostError as error:
        given.out.note(f"without the application: {error.code} {error.text}")
        return None


def definitions(service: Milepost) -> list[Definition]:
    """Return the compiled definitions of a service, by name and version."""
    return sorted(service.definitions, key=lambda found: (found.name, found.version))


def plan_of(service: Milepost, saga: str, version: int) -> Plan:
    """Return what a definition adds to a run of it; nothing when the service does not have it."""
    found = service.definitions.get(saga, version)
    if found is None:
        return Plan()
    return Plan(
        nodes=[node.name for node in found.nodes],
        on_timeout={node.name: node.wait.on_timeout.value for node in found.nodes if node.wait is not None},
        active_timeout=found.active_timeout,
    )


def event_topics(service: Milepost) -> list[str]:
    """Return the topics that the service reads: those of its consumers and of the events that its sagas await."""
    from ..consumers.signals import awaited

    read = {topic for consumer in service.consumers.values() for topic in consumer.topics}
    return sorted(read | {event.milepost_spec.topic for event in awaited(service)})


def internal_topics(service: Milepost) -> list[str]:
    """Return the topics of a service's own that `serve` creates."""
    from ..consumers.dead_topic import dead_topics
    from ..consumers.queues import lane_topics
    from ..schemas.messages import runs_topic, timers_topic

    if not service.sagas:
        return dead_topics(service)
    lanes = lane_topics(service)
    return sorted([runs_topic(service.name), timers_topic(service.name), *lanes, *dead_topics(service)])
