"""Settings of the console, from the environment (prefix MILEPOST_CONSOLE_)."""

from __future__ import annotations

from datetime import timedelta
from functools import cached_property
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from limits import parse as parse_limit
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from ...recovery.permissions import Grant, Role
from ...schemas.errors import StartError
from ...schemas.settings import Duration, Settings, what_is_wrong

PREFIX = "MILEPOST_CONSOLE_"
#: Shortest secret that cookies are signed with, in characters.
SHORTEST_SECRET = 32
#: Claims of OpenID Connect that name a person for good (Core 1.0, 5.7), or an address that the provider has verified.
NAME_CLAIMS = ("sub", "email")
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


class GroupGrant(BaseModel):
    """What members of a group of the provider, or of the proxy, may do.

    Attributes:
        group: Its name; "*" is everybody who can sign in.
        tenants: Only there; None for all.
        sagas: Only those; None for all.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    group: str = Field(min_length=1)
    role: Annotated[Role, BeforeValidator(lambda role: role.upper() if isinstance(role, str) else role)]
    tenants: frozenset[str] | None = None
    sagas: frozenset[str] | None = None

    @property
    def grant(self) -> Grant:
        """As permissions know it."""
        return Grant(self.role, self.tenants, self.sagas)


def _rate(text: str) -> str:
    parse_limit(text)  # ValueError says what is wrong
    return text


def _networks(text: str) -> str:
    for part in _parts(text):
        ip_network(part, strict=False)
    return text


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.netloc or parts.query or parts.fragment:
        raise ValueError("it is no URL such as https://console.example.org")
    return text.rstrip("/")


def _origin(text: str) -> str:
    text = _url(text)
    if urlsplit(text).path:
        raise ValueError("it has a path; the console is served at the root of a host")
    return text


def _trace_url(text: str) -> str:
    if "{trace}" not in text:
        raise ValueError("it has no {trace}, in whose place the trace's id stands")
    _url(text.replace("{trace}", "0"))
    return text


Rate = Annotated[str, AfterValidator(_rate)]


class ConsoleSettings(BaseSettings):
    """How the console is reached, and how people and programs say who they are.

    Attributes:
        core: The settings of the process: the database, above all.
        host: Address that is listened on.
        port: Its port; 0 for any that is free.
        public_url: Where browsers find it, when not at that address: https://console.example.org.
        secret: Signs cookies, 32 characters or more; drawn at each start when not set.
        session: How long a sign-in holds.
        oidc_issuer: URL of the OpenID Connect provider.
        oidc_client_id: The console's name there.
        oidc_client_secret: Its secret there; a public client has none.
        oidc_scope: What the provider is asked for.
        oidc_name: The claim that names a person: sub, or email where the provider says that it is verified.
        oidc_groups: The claim that lists groups.
        proxy_from: Addresses or networks, comma-separated, of proxies whose headers count.
        proxy_header: The header in which such a proxy says who has signed in.
        proxy_groups_header: The header in which it lists groups, comma-separated.
        proxy_secret: What it sends in X-Milepost-Proxy-Secret, as a proof.
        grants: What groups may do, as JSON: [{"group": "ops", "role": "operator", "tenants": ["acme"]}].
        rate: Requests that one identity may make, as "600/minute".
        rate_address: Requests that one address may make.
        rate_sign_in: Tries to sign in, and requests with a wrong token, that one address may make.
        max_body: Longest body of a request, in bytes.
        connections: Most connections to the database.
        tour: A file of Markdown that the page /tour shows.
        traces: Where a trace is looked at, as "https://jaeger.example.org/trace/{trace}"; a run's page links there.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
        ignored_types=(cached_property,),
    )

    core: Settings
    host: str = "127.0.0.1"
    port: int = Field(default=8700, ge=0, le=65535)
    public_url: Annotated[str, AfterValidator(_origin)] | None = None
    secret: SecretStr | None = Field(default=None, min_length=SHORTEST_SECRET)
    session: Duration = timedelta(hours=8)
    oidc_issuer: Annotated[str, AfterValidator(_url)] | None = None
    oidc_client_id: str | None = None
    oidc_client_secret: SecretStr | None = None
    oidc_scope: str = "openid profile email"
    oidc_name: str = "sub"
    oidc_groups: str = "groups"
    proxy_from: Annotated[str, AfterValidator(_networks)] = ""
    proxy_header: str | None = None
    proxy_groups_header: str | None = None
    proxy_secret: SecretStr | None = Field(default=None, min_length=SHORTEST_SECRET)
    grants: tuple[GroupGrant, ...] = ()
    rate: Rate = "600/minute"
    rate_address: Rate = "1200/minute"
    rate_sign_in: Rate = "20/minute"
    max_body: int = Field(default=1_048_576, gt=0)
    connections: int = Field(default=10, gt=0)
    tour: Path | None = None
    traces: Annotated[str, AfterValidator(_trace_url)] | None = None

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def trace_url(self, trace: str | None) -> str | None:
        """Return where a trace is looked at; None when there is none, or nothing says where."""
        return None if self.traces is None or trace is None else self.traces.replace("{trace}", trace)

    @property
    def secure(self) -> bool:
        """Whether browsers reach it by https."""
        return (self.public_url or "").startswith("https://")

    @property
    def hosts(self) -> frozenset[str]:
        """Names that a request may call this host by."""
        public = urlsplit(self.public_url).hostname if self.public_url else None
        return frozenset({public} if public else ()) | (_LOCAL if self.loopback else frozenset())

    @cached_property
    def proxies(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """Networks whose proxies are trusted."""
        return tuple(ip_network(part, strict=False) for part in _parts(self.proxy_from))

    @property
    def has_identity(self) -> bool:
        """Whether a provider or a proxy says who asks."""
        return self.oidc_issuer is not None or self.proxy_header is not None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        """Refuse settings that contradict each other, or that would trust what anybody may send."""
        if (self.oidc_issuer is None) != (self.oidc_client_id is None):
            raise ValueError(f"{PREFIX}OIDC_ISSUER and {PREFIX}OIDC_CLIENT_ID go together")
        if self.oidc_name not in NAME_CLAIMS:
            raise ValueError(
                f"{PREFIX}OIDC_NAME is none of {', '.join(NAME_CLAIMS)}; others name nobody for good"
            )
        if self.proxy_header is not None and not self.proxy_from:
            raise ValueError(
                f"{PREFIX}PROXY_HEADER needs {PREFIX}PROXY_FROM: anybody else can send that header"
            )
        if self.proxy_groups_header is not None and self.proxy_header is None:
            raise ValueError(f"{PREFIX}PROXY_GROUPS_HEADER needs {PREFIX}PROXY_HEADER")
        return self

    @classmethod
    def from_env(cls, core: Settings, **given: Any) -> Self:
        """Read the settings from MILEPOST_CONSOLE_* variables.

        Args:
            core: The settings of the process.
            given: Those that were said otherwise, on the command line; None for not said.

        Raises:
            StartError: MP203 when a variable is wrong, naming each.
        """
        said = {name: value for name, value in given.items() if value is not None}
        try:
            return cls(core=core, **said)
        except ValidationError as error:
            raise StartError("MP203", f"settings: {what_is_wrong(error, PREFIX)}.") from None


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
