"""OpenID Connect: the authorization code flow (Core 1.0, 3.1) with PKCE (RFC 7636), and what is believed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import httpx
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.httpx_client import AsyncOAuth2Client
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from ....recovery.permissions import ActorKind
from ....schemas.ids import Clock
from ..settings import ConsoleSettings
from .model import SignedIn, Way, name_problem
from .signing import new_secret

#: How long the provider may take for one answer, in seconds.
WITHIN = 10.0
#: How far its clock may be off, in seconds.
LEEWAY = 60
#: How long its description and keys are kept, in seconds.
KEPT = 3600.0
#: Signatures that are taken; "none", and those with a key that both sides share, are not.
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA"]


class ProviderRefused(Exception):
    """The provider's answer signs nobody in; the text says why, for the log."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A sign-in that a browser has begun.

    Attributes:
        url: Where it goes on.
        kept: What has to come back with it; stays in the browser, signed.
    """

    url: str
    kept: dict[str, str]


class Provider:
    """The provider that the settings name.

    Args:
        clock: Judges how old its answers are.
    """

    def __init__(self, settings: ConsoleSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._known: tuple[float, dict[str, Any]] | None = None
        self._keys: tuple[float, KeySet] | None = None

    async def begin(self, redirect: str, then: str) -> Begun:
        """Return where a browser goes to sign in.

        Args:
            redirect: Where the provider sends it back to.
            then: Where it goes on in the console.

        Raises:
            ProviderRefused: It cannot be reached, or does not describe itself.
        """
        known = await self._described()
        kept = {"nonce": new_secret(), "verifier": new_secret() + new_secret(), "then": then}
        async with self._client(redirect) as client:
            url, state = client.create_authorization_url(
                known["authorization_endpoint"], nonce=kept["nonce"], code_verifier=kept["verifier"]
            )
        return Begun(url, {**kept, "state": state})

    async def finish(self, kept: Mapping[str, str], answer: Mapping[str, str], redirect: str) -> SignedIn:
        """Return who has signed in.

        Args:
            kept: What was kept of the beginning.
            answer: The query with which the browser came back.

        Raises:
            ProviderRefused: The answer is an error, belongs to another sign-in, or is not the provider's.
        """
        if "error" in answer:
            raise ProviderRefused(f"the provider answered {answer['error'][:100]}")
        if answer.get("state") != kept["state"] or not answer.get("code"):
            raise ProviderRefused("the answer belongs to another sign-in")
        known = await self._described()
        if answer.get("iss", known["issuer"]) != known["issuer"]:
            raise ProviderRefused("the answer names another issuer")
        try:
            async with self._client(redirect) as client:
                token = await client.fetch_token(
                    known["token_endpoint"],
                    grant_type="authorization_code",
                    code=answer["code"],
                    code_verifier=kept["verifier"],
                )
        except (
            Exception
        ) as error:  # of the provider, of the network, or of one of the HTTP clients that Authlib knows
            raise ProviderRefused(f"the code was not taken: {type(error).__name__} {error}") from error
        return self._person(await self._claims(token, kept["nonce"]))

    async def _claims(self, token: Mapping[str, Any], nonce: str) -> Mapping[str, Any]:
        try:
            read = jwt.decode(str(token["id_token"]), await self._key_set(), algorithms=ALGORITHMS)
            claims = CodeIDToken(
                read.claims,
                read.header,
                {
                    "iss": {"essential": True, "value": (await self._described())["issuer"]},
                    "aud": {"essential": True, "value": self._settings.oidc_client_id},
                    "sub": {"essential": True},
                },
                {
                    "nonce": nonce,
                    "client_id": self._settings.oidc_client_id,
                    "access_token": token.get("access_token"),
                },
            )
            claims.validate(now=int(self._clock.now().timestamp()), leeway=LEEWAY)
        except (JoseError, AuthlibBaseError, KeyError, ValueError, TypeError) as error:
            raise ProviderRefused(f"its id_token is not believed: {type(error).__name__} {error}") from error
        return cast("Mapping[str, Any]", claims)

    def _person(self, claims: Mapping[str, Any]) -> SignedIn:
        claim = self._settings.oidc_name
        name = claims.get(claim)
        if claim == "email" and claims.get("email_verified") is not True:
            raise ProviderRefused("it has not verified the person's email")
        if problem := name_problem(name):
            raise ProviderRefused(f"its claim {claim} names nobody: {problem}")
        groups = claims.get(self._settings.oidc_groups, ())
        groups = [groups] if isinstance(groups, str) else groups
        own = (
            [group for group in groups if isinstance(group, str)] if isinstance(groups, list | tuple) else []
        )
        return SignedIn(name=str(name), kind=ActorKind.PERSON, way=Way.OIDC, groups=tuple(own[:500]))

    # --- what it says of itself ---------------------------------------------------------------------------

    async def _described(self) -> dict[str, Any]:
        now = self._clock.monotonic()
        if self._known is not None and now < self._known[0]:
            return self._known[1]
        issuer = self._settings.oidc_issuer
        assert issuer is not None
        found = await self._get(f"{issuer}/.well-known/openid-configuration")
        if str(found.get("issuer", "")).rstrip("/") != issuer:
            raise ProviderRefused(f"it calls itself {found.get('issuer')!r}, and not {issuer}")
        missing = [
            name for name in ("authorization_endpoint", "token_endpoint", "jwks_uri") if name not in found
        ]
        if missing:
            raise ProviderRefused(f"it does not say its {', '.join(missing)}")
        self._known = (now + KEPT, found)
        return found

    async def _key_set(self) -> KeySet:
        now = self._clock.monotonic()
        if self._keys is None or now >= self._keys[0]:
            found = await self._get((await self._described())["jwks_uri"])
            self._keys = (now + KEPT / 12, KeySet.import_key_set(cast("Any", found)))
        return self._keys[1]

    async def _get(self, url: str) -> dict[str, Any]:
        try:
            async with httpx.AsyncClient(timeout=WITHIN, follow_redirects=False) as client:
                response = await client.get(url)
                response.raise_for_status()
                found = response.json()
        except (httpx.HTTPError, ValueError) as error:
            raise ProviderRefused(f"{url} does not answer: {type(error).__name__} {error}") from error
        if not isinstance(found, dict):
            raise ProviderRefused(f"{url} answers with something else than an object")
        return found

    def _client(self, redirect: str) -> AsyncOAuth2Client:
        secret = self._settings.oidc_client_secret
        return AsyncOAuth2Client(
            self._settings.oidc_client_id,
            None if secret is None else secret.get_secret_value(),
            token_endpoint_auth_method="none" if secret is None else "client_secret_basic",
            scope=self._settings.oidc_scope,
            redirect_uri=redirect,
            code_challenge_method="S256",
            timeout=WITHIN,
        )
