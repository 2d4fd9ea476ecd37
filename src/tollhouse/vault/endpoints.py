"""The vault over HTTP. Values go in and never come out: models hold what may be told of secrets.

    /vault/...                              secrets of the key's workspace and of its interns
    /vault-keys/rotate, /vault-imports      for operators; ours
    /egress-sessions                        for `tollhouse egress run`, on the server's own machine

Requests below `/vault` are checked in one order: 401, 403 (region), 404 (programme), 404 (an
intern's own key elsewhere), 503 (writes are switched off), 413, 400, 404 (the thing itself), 409.
The first two are the gate's.

Source: the public gateway's vault; `explain` and what an operator asks for are ours.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, Field
from pydantic.config import JsonDict
from starlette import types as asgi

from tollhouse.identity.access import caller_of
from tollhouse.identity.callers import HoldingKey, Operating
from tollhouse.identity.service import IdentityService
from tollhouse.identity.types import LocalOperator, Manager, Subject, Workspace
from tollhouse.kernel import hosts
from tollhouse.kernel.errors import Forbidden, Unavailable
from tollhouse.kernel.json_body import JsonBodyReader, body_schema
from tollhouse.kernel.pages import Window
from tollhouse.kernel.secret import Secret
from tollhouse.kernel.wire import (
    OTHER_ACCOUNT,
    Reference,
    RequestModel,
    ResponseModel,
    SentTime,
    refusals,
)
from tollhouse.storage.database import Database
from tollhouse.vault import policy
from tollhouse.vault.egress.service import ProgramSession, ProgramSessions
from tollhouse.vault.envelope import Unopenable
from tollhouse.vault.key_encryption import KeysUnavailable
from tollhouse.vault.maintenance import ImportedSecret, VaultMaintenance
from tollhouse.vault.service import VaultService
from tollhouse.vault.types import NewSecret, Scope, StoredSecret, Verdict

_NAME: JsonDict = {"minLength": 1, "maxLength": policy.LONGEST_NAME, "pattern": policy.NAME}
_VALUE: JsonDict = {"minLength": 1, "maxLength": policy.LONGEST_VALUE}
_HOSTS: JsonDict = {
    "minItems": 1,
    "maxItems": policy.MOST_HOSTS,
    "items": {"type": "string", "minLength": 1, "maxLength": hosts.LONGEST_AS_SENT},
}
_NAMES: JsonDict = {"minItems": 1, "maxItems": policy.MOST_COPIED, "uniqueItems": True}


class WriteBody(RequestModel):
    """A secret to store."""

    value: Annotated[str, Field(json_schema_extra={**_VALUE, "format": "password"}, repr=False)]
    """What is kept secret: 1 to 65536 characters, none of them a line break. Never returned."""
    hosts: Annotated[list[str], Field(json_schema_extra=_HOSTS)]
    """The 1 to 100 hosts that may receive it, such as api.example.com: each exactly, without
    scheme, port, path or wildcard."""


class CopyBody(RequestModel):
    """Which secrets of the workspace to copy."""

    names: Annotated[list[str], Field(json_schema_extra=_NAMES)]
    """1 to 100 names, each once."""


class SecretReply(ResponseModel):
    """What may be told of a secret."""

    name: str
    """Unique in its vault."""
    hosts: list[str] | None
    """Those that may receive it; null for one from before secrets were bound to hosts."""
    fingerprint: str | None
    """`sha256:<hex>`: equal for equal values in one vault. Null exactly where `hosts` is."""
    created_at: SentTime
    """When the name was first stored."""


class OneSecret(ResponseModel):
    """The envelope of one secret."""

    data: SecretReply
    """The secret."""


class SecretList(ResponseModel):
    """The envelope of some secrets."""

    data: list[SecretReply]
    """In the order in which they were named."""


class SecretPage(ResponseModel):
    """Part of the list of a vault's secrets."""

    data: list[SecretReply]
    """By name."""
    has_more: bool
    """Whether there are further ones."""


class EffectiveReply(SecretReply):
    """The secret that an intern receives under a name."""

    scope: Scope
    """Whose vault it comes from: intern, attached or workspace."""


class EffectivePage(ResponseModel):
    """Part of the list of what an intern receives."""

    data: list[EffectiveReply]
    """By name, one for each."""
    has_more: bool
    """Whether there are further ones."""


class HiddenReply(SecretReply):
    """A secret that another one of its name stands before."""

    scope: Scope
    """Whose vault it is in."""
    version: int
    """Counted from 1."""


class ExplainedReply(EffectiveReply):
    """The same, with why it is this one."""

    version: int
    """Counted from 1."""
    hidden: list[HiddenReply]
    """Those of the same name that lost against it, the strongest first."""
    verdict: Verdict | None
    """Whether it goes to the `host` that was asked about, or why not; null without one."""


class ExplainedPage(ResponseModel):
    """Part of the list of what an intern receives, and why."""

    data: list[ExplainedReply]
    """By name, one for each."""
    has_more: bool
    """Whether there are further ones."""


class SecretsQuery(BaseModel):
    """Which part of a list is wanted."""

    limit: int = Field(default=100, ge=1, le=100, description="How many to return at most.")
    offset: int = Field(default=0, ge=0, le=10_000, description="How many to skip.")


class EffectiveQuery(SecretsQuery):
    """Which part of what an intern receives is wanted, and how much of it."""

    explain: bool = Field(
        default=False, description="Also tell versions, and the secrets that lost. Ours."
    )
    host: str | None = Field(
        default=None, description="With `explain`: tell of each whether it goes to this host. Ours."
    )


class UnboundSecret(RequestModel):
    """A secret of an older store."""

    name: Annotated[str, Field(json_schema_extra=_NAME)]
    """What it is called."""
    value: Annotated[str, Field(json_schema_extra={**_VALUE, "format": "password"}, repr=False)]
    """What is kept secret."""


class ImportBody(RequestModel):
    """Secrets of an older store, which bound nothing to hosts."""

    workspace_id: Reference
    """Id or slug of the workspace whose they become."""
    secrets: Annotated[list[UnboundSecret], Field(min_length=1, max_length=1000)]
    """Each name once."""
    account_id: Annotated[Reference | None, Field(description=OTHER_ACCOUNT)] = None


class ImportedReply(ResponseModel):
    """What came of an import."""

    imported: list[str]
    """Names that were taken in."""
    kept: list[str]
    """Names that a secret with hosts has already, which stays."""


class OneImport(ResponseModel):
    """The envelope of an import."""

    data: ImportedReply
    """What came of it."""


class RotatedReply(ResponseModel):
    """What a rotation of the key-encryption key did."""

    kek_id: str
    """The key in use from now on, by a name that tells nothing of it."""
    vaults: int
    """How many data keys were wrapped with it."""


class OneRotation(ResponseModel):
    """The envelope of a rotation."""

    data: RotatedReply
    """How many vaults were sealed anew, and with which key."""


_BODIES: Final = JsonBodyReader(policy.LARGEST_BODY, declared=True)
_INTERN: Final = "internId"

Name = Annotated[
    str, Path(description="The secret's name.", json_schema_extra={"pattern": policy.NAME})
]
InternId = Annotated[
    str, Path(alias=_INTERN, description="The intern.", json_schema_extra={"format": "uuid"})
]


@dataclass(frozen=True, slots=True)
class SecretEndpoints:
    """The endpoints of secrets."""

    service: VaultService
    database: Database

    def add_to(self, routes: APIRouter) -> None:
        """Add them to a router."""
        one, own = "/vault/secrets/{name}", "/vault/interns/{internId}/secrets"
        self._add(routes, "GET", "/vault/secrets", self.list_secrets)
        self._add(routes, "PUT", one, self.put_secret, WriteBody)
        self._add(routes, "DELETE", one, self.delete_secret)
        self._add(routes, "GET", own, self.list_intern_secrets)
        self._add(routes, "PUT", f"{own}/{{name}}", self.put_intern_secret, WriteBody)
        self._add(routes, "DELETE", f"{own}/{{name}}", self.delete_intern_secret)
        self._add(routes, "POST", f"{own}/copy", self.copy_secrets, CopyBody, copies=True)
        effective = "/vault/interns/{internId}/effective-secrets"
        self._add(routes, "GET", effective, self.list_effective_secrets)

    def _add(
        self,
        routes: APIRouter,
        method: str,
        path: str,
        endpoint: Callable[..., object],
        body: type[BaseModel] | None = None,
        *,
        copies: bool = False,
    ) -> None:
        """Add a route; who changes secrets is checked before the body is read."""
        writes = method != "GET"

        async def admit(request: Request, caller: HoldingKey) -> None:
            intern_id = request.path_params.get(_INTERN)
            await self.service.admit(caller, intern_id, writes=writes, copies=copies)

        routes.add_api_route(
            path,
            endpoint,
            methods=[method],
            tags=["Vault"],
            status_code=204 if method == "DELETE" else 200,
            dependencies=[Depends(admit), *([Depends(_BODIES.read)] if writes else ())],
            responses=refusals(
                *(400, 401, 403, 404, 408), *((409, 413) if writes else ()), *(429, 500, 503)
            ),
            openapi_extra=None if body is None else dict(body_schema(body)),
        )

    # Of the workspace

    async def list_secrets(
        self, caller: HoldingKey, query: Annotated[SecretsQuery, Query()]
    ) -> SecretPage:
        """List the secrets of the key's workspace; values are never returned."""
        return await self._page(caller, None, query)

    async def put_secret(self, request: Request, caller: HoldingKey, name: Name) -> OneSecret:
        """Store a secret of the workspace, in place of the one of this name."""
        return await self._put(request, caller, None, name)

    async def delete_secret(self, caller: HoldingKey, name: Name) -> Response:
        """Delete a secret of the workspace."""
        return await self._delete(caller, None, name)

    # Of an intern

    async def list_intern_secrets(
        self, caller: HoldingKey, intern_id: InternId, query: Annotated[SecretsQuery, Query()]
    ) -> SecretPage:
        """List the secrets of an intern's own vault; values are never returned."""
        return await self._page(caller, policy.intern_uuid(intern_id), query)

    async def put_intern_secret(
        self, request: Request, caller: HoldingKey, intern_id: InternId, name: Name
    ) -> OneSecret:
        """Store a secret of an intern, in place of the one of this name."""
        return await self._put(request, caller, policy.intern_uuid(intern_id), name)

    async def delete_intern_secret(
        self, caller: HoldingKey, intern_id: InternId, name: Name
    ) -> Response:
        """Delete a secret of an intern."""
        return await self._delete(caller, policy.intern_uuid(intern_id), name)

    async def copy_secrets(
        self, request: Request, caller: HoldingKey, intern_id: InternId
    ) -> SecretList:
        """Copy secrets of the workspace into an intern's vault, with values and hosts.

        All of them or none. The intern's own ones of the same names are replaced.
        """
        intern = policy.intern_uuid(intern_id)
        names = policy.check_names(_BODIES.parsed(request, CopyBody).names)
        copies = await self.service.copy(caller, intern, names)
        return SecretList(data=[SecretReply(**_told(each)) for each in copies])

    async def list_effective_secrets(
        self, caller: HoldingKey, intern_id: InternId, query: Annotated[EffectiveQuery, Query()]
    ) -> EffectivePage | ExplainedPage:
        """List the secrets that an intern's outbound requests receive, one for each name.

        The intern's own come first, then those of a vault that is attached to it, then the
        workspace's; the same decides about its requests. 404 where the attached vault is gone.
        """
        intern = policy.intern_uuid(intern_id)
        host = None if query.host is None else policy.normal_host(query.host)
        async with self.database.reading() as read:
            resolved = await self.service.effective(read, caller, intern)
        end = query.offset + query.limit
        shown, has_more = list(resolved.values())[query.offset : end], len(resolved) > end
        if not query.explain:
            replies = [EffectiveReply(**_told(each.secret), scope=each.scope) for each in shown]
            return EffectivePage(data=replies, has_more=has_more)

        def verdict(name: str) -> Verdict | None:
            return None if host is None else self.service.verdict(resolved, name, host)

        explained = [
            ExplainedReply(
                **_told(each.secret),
                scope=each.scope,
                version=each.secret.version,
                hidden=[
                    HiddenReply(**_told(secret), scope=scope, version=secret.version)
                    for scope, secret in each.hidden
                ],
                verdict=verdict(each.secret.name),
            )
            for each in shown
        ]
        return ExplainedPage(data=explained, has_more=has_more)

    # Parts

    async def _page(self, caller: Subject, intern: str | None, query: SecretsQuery) -> SecretPage:
        window = Window(query.offset, query.limit)
        async with self.database.reading() as read:
            found = await self.service.secrets(read, caller, intern, window)
        data = [SecretReply(**_told(each)) for each in found.secrets]
        return SecretPage(data=data, has_more=found.has_more)

    async def _put(
        self, request: Request, caller: Subject, intern: str | None, name: str
    ) -> OneSecret:
        policy.check_name(name)
        body = _BODIES.parsed(request, WriteBody)
        new = NewSecret(Secret(policy.check_value(body.value)), policy.normal_hosts(body.hosts))
        stored = await self.service.put(caller, intern, name, new)
        return OneSecret(data=SecretReply(**_told(stored)))

    async def _delete(self, caller: Subject, intern: str | None, name: str) -> Response:
        policy.check_name(name)
        async with self.database.writing() as write:
            await self.service.delete(write, caller, intern, name)
        return Response(status_code=204)


def _told(secret: StoredSecret) -> dict[str, Any]:
    return {
        "name": secret.name,
        "hosts": None if secret.hosts is None else list(secret.hosts),
        "fingerprint": secret.fingerprint,
        "created_at": secret.created_at,
    }


@dataclass(frozen=True, slots=True)
class MaintenanceEndpoints:
    """The endpoints for operators."""

    maintenance: VaultMaintenance
    identity: IdentityService
    database: Database

    def add_to(self, routes: APIRouter) -> None:
        """Add them to a router."""
        for path, endpoint, statuses in (
            ("/vault-keys/rotate", self.rotate_vault_keys, (400, 401, 403, 500, 503)),
            ("/vault-imports", self.import_secrets, (400, 401, 403, 404, 413, 500, 503)),
        ):
            routes.post(path, tags=["Vault upkeep"], responses=refusals(*statuses))(endpoint)

    async def rotate_vault_keys(self, who: Operating) -> OneRotation:
        """Wrap every vault's data key with a new key-encryption key. Nothing stops meanwhile."""
        try:
            kek_id, vaults = await self.maintenance.rotate(who.actor)
        except KeysUnavailable as error:
            message = f"The key cannot be changed now: {error.reason}. Try again."
            raise Unavailable(message) from error
        except Unopenable as error:
            raise Unavailable("A vault's key does not open; no key was forgotten.") from error
        return OneRotation(data=RotatedReply(kek_id=kek_id, vaults=vaults))

    async def import_secrets(self, who: Operating, body: ImportBody) -> OneImport:
        """Take in secrets that are bound to no host.

        They are listed, and replaced when their names are stored again. They reach a host only
        where `vault.release_unbound` says so.
        """
        secrets = [
            ImportedSecret(
                policy.check_name(each.name, f"secrets.{at}.name"),
                Secret(policy.check_value(each.value, f"secrets.{at}.value")),
            )
            for at, each in enumerate(body.secrets)
        ]
        workspace = await _workspace(self.database, self.identity, who, body)
        imported, kept = await self.maintenance.import_unbound(workspace, secrets, who.actor)
        return OneImport(data=ImportedReply(imported=imported, kept=kept))


class SessionBody(RequestModel):
    """Whose session it is."""

    workspace_id: Reference
    """Id or slug of the workspace whose secrets it receives."""
    account_id: Reference | None = None
    """Its account, where there are several."""


async def _workspace(
    database: Database, identity: IdentityService, who: Manager, body: ImportBody | SessionBody
) -> Workspace:
    async with database.reading() as read:
        home = await identity.home(read, who, body.account_id)
        return await identity.workspace(read, home, body.workspace_id)


@dataclass(frozen=True, slots=True)
class EgressSessionEndpoints:
    """`POST /egress-sessions`: one line of JSON; the session lives until the client leaves.

    It is no part of the API: what it answers with is a folder of this machine.
    """

    programs: ProgramSessions | None
    identity: IdentityService
    database: Database

    async def begin_session(self, request: Request, who: Operating, body: SessionBody) -> Response:
        """Serve a session until the client leaves, or the server stops."""
        if not isinstance(caller_of(request.scope), LocalOperator):
            raise Forbidden("Sessions of programs are for the server's own machine.")
        if self.programs is None:
            message = "No server runs on the data folder: start one with `tollhouse serve`."
            raise Unavailable(message)
        workspace = await _workspace(self.database, self.identity, who, body)
        program = await self.programs.begin(who, workspace)
        return _SessionResponse(program, self.programs)


class _SessionResponse(Response):
    """A reply that lasts as long as its session, which ends when anything ends the reply."""

    media_type = "application/x-ndjson"

    def __init__(self, program: ProgramSession, programs: ProgramSessions) -> None:
        super().__init__()
        self._program = program
        self._programs = programs

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        del scope
        try:
            await self._begin(send)
            await self._wait(receive)
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._programs.leave(self._program)

    async def _begin(self, send: asgi.Send) -> None:
        facts = {
            "session": self._program.session,
            "folder": str(self._program.folder),
            "password": self._program.password.reveal(),
        }
        line = json.dumps({"data": facts}).encode() + b"\n"
        headers = [(b"content-type", self.media_type.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": line, "more_body": True})

    async def _wait(self, receive: asgi.Receive) -> None:
        """Wait until the client has left, or the server stops."""
        waiting = {
            asyncio.ensure_future(_disconnected(receive)),
            asyncio.ensure_future(self._programs.stopping.wait()),
        }
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()


async def _disconnected(receive: asgi.Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


def router(
    service: VaultService,
    maintenance: VaultMaintenance,
    identity: IdentityService,
    database: Database,
    *,
    programs: ProgramSessions | None = None,
) -> APIRouter:
    """Return the routes of the vault; those of the proxy's sessions work in a server alone."""
    routes = APIRouter()
    SecretEndpoints(service, database).add_to(routes)
    MaintenanceEndpoints(maintenance, identity, database).add_to(routes)
    sessions = EgressSessionEndpoints(programs, identity, database)
    routes.post("/egress-sessions", include_in_schema=False)(sessions.begin_session)
    return routes
