"""What an application of the console is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from starlette.requests import Request

from ...recovery.policies import OfService, Policies
from ...schemas.ids import Clock, Ids
from ...streams.database import Database
from .identity.links import Links
from .identity.signing import Signing
from .rates import Rates
from .settings import ConsoleSettings

if TYPE_CHECKING:
    from ...consumers.app import Milepost
    from .identity.oidc import Provider
    from .identity.recognising import Recogniser


@dataclass(frozen=True)
class Parts:
    """The parts, in `app.state.parts`.

    Attributes:
        service: The application, where this console was told of one: its policies, and what it inspects.
    """

    settings: ConsoleSettings
    database: Database
    clock: Clock
    ids: Ids
    signing: Signing
    links: Links
    rates: Rates
    recogniser: Recogniser
    provider: Provider | None
    service: Milepost | None = None

    @property
    def policies(self) -> Policies:
        """What is decided about drifts: for the application's own as it says."""
        if self.service is None:
            return Policies()
        own = self.service.policies
        return OfService(own.given, own.after, own.levels, own.level, service=self.service.name)


def parts(request: Request) -> Parts:
    """Return the parts of the application that handles a request."""
    return cast("Parts", request.app.state.parts)
