"""`/vault`: secrets of the key's workspace and of its interns. Values go in and never come out.

What is refused comes in one order: 401, 403 (region), 404 (programme), 404 (an intern's own key
elsewhere), 503 (writes are switched off), 413, 400, 404 (the thing itself), 409. The first two are
the front's.

Source: the public gateway's vault.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel

from tollhouse.identity.access import HoldingKey
from tollhouse.identity.types import Subject
from tollhouse.kernel.bodies import Bodies, described
from tollhouse.kernel.pages import Window
from tollhouse.kernel.secret import Secret
from tollhouse.kernel.wire import refusals
from tollhouse.storage.database import Database
from tollhouse.vault import policy
from tollhouse.vault.endpoints.wire import (
    CopyBody,
    EffectivePage,
    EffectiveQuery,
    ExplainedPage,
    OneSecret,
    SecretList,
    SecretPage,
    SecretsQuery,
    WriteBody,
    effective_reply,
    explained_reply,
    secret_reply,
)
from tollhouse.vault.service import SecretsPage, VaultService
from tollhouse.vault.types import NewSecret, Verdict

_BODIES: Final = Bodies(policy.LARGEST_BODY, declared=True)
_INTERN: Final = "internId"
_TAG: Final = "Vault"

Name = Annotated[
    str,
    Path(description="The secret's name.", json_schema_extra={"pattern": policy.NAME}),
]
InternId = Annotated[
    str, Path(alias=_INTERN, description="The intern.", json_schema_extra={"format": "uuid"})
]
Gate = Callable[..., Awaitable[None]]


class Secrets:
    """The endpoints of secrets."""

    def __init__(self, service: VaultService, database: Database) -> None:
        """Take what they need."""
        self._service = service
        self._database = database

    def add_to(self, routes: APIRouter) -> None:
        """Add them to a router."""
        one, own = "/vault/secrets/{name}", "/vault/interns/{internId}/secrets"
        self._read(routes, "/vault/secrets", self.list_secrets)
        self._write(routes, "PUT", one, self.put_secret, WriteBody)
        self._write(routes, "DELETE", one, self.delete_secret, None)
        self._read(routes, own, self.list_intern_secrets)
        self._write(routes, "PUT", f"{own}/{{name}}", self.put_intern_secret, WriteBody)
        self._write(routes, "DELETE", f"{own}/{{name}}", self.delete_intern_secret, None)
        self._write(routes, "POST", f"{own}/copy", self.copy_secrets, CopyBody, copies=True)
        self._read(
            routes,
            "/vault/interns/{internId}/effective-secrets",
            self.list_effective_secrets,
        )

    def _read(self, routes: APIRouter, path: str, endpoint: Callable[..., object]) -> None:
        routes.add_api_route(
            path,
            endpoint,
            methods=["GET"],
            tags=[_TAG],
            dependencies=[Depends(self._gate(writes=False))],
            responses=refusals(400, 401, 403, 404, 408, 429, 500, 503),
        )

    def _write(  # noqa: PLR0913 - what a route consists of
        self,
        routes: APIRouter,
        method: str,
        path: str,
        endpoint: Callable[..., object],
        body: type[BaseModel] | None,
        *,
        copies: bool = False,
    ) -> None:
        """Add a route that changes secrets; it is judged before its body is read."""
        statuses = [400, 401, 403, 404, 408, 409, 413, 429, 500, 503]
        routes.add_api_route(
            path,
            endpoint,
            methods=[method],
            tags=[_TAG],
            status_code=204 if body is None else 200,
            dependencies=[
                Depends(self._gate(writes=True, copies=copies)),
                Depends(_BODIES.read),
            ],
            responses=refusals(*statuses),
            openapi_extra=None if body is None else dict(described(body)),
        )

    def _gate(self, *, writes: bool, copies: bool = False) -> Gate:
        async def admit(request: Request, caller: HoldingKey) -> None:
            intern_id = request.path_params.get(_INTERN)
            await self._service.admit(caller, intern_id, writes=writes, copies=copies)

        return admit

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
        copies = await self._service.copy(caller, intern, names)
        return SecretList(data=[secret_reply(each) for each in copies])

    async def list_effective_secrets(
        self, caller: HoldingKey, intern_id: InternId, query: Annotated[EffectiveQuery, Query()]
    ) -> EffectivePage | ExplainedPage:
        """List the secrets that an intern's outbound requests receive, one for each name.

        The intern's own come first, then those of a vault that is attached to it, then the
        workspace's; the same decides about its requests. 404 where the attached vault is gone.
        """
        intern = policy.intern_uuid(intern_id)
        host = None if query.host is None else policy.normal_host(query.host)
        async with self._database.reading() as read:
            resolved = await self._service.effective(read, caller, intern)
        shown = list(resolved.values())[query.offset : query.offset + query.limit]
        has_more = len(resolved) > query.offset + query.limit
        if not query.explain:
            return EffectivePage(data=[effective_reply(each) for each in shown], has_more=has_more)

        def verdict(name: str) -> Verdict | None:
            return None if host is None else self._service.verdict(resolved, name, host)

        explained = [explained_reply(each, verdict(each.secret.name)) for each in shown]
        return ExplainedPage(data=explained, has_more=has_more)

    # Parts

    async def _page(self, caller: Subject, intern: str | None, query: SecretsQuery) -> SecretPage:
        window = Window(query.offset, query.limit)
        async with self._database.reading() as read:
            found: SecretsPage = await self._service.secrets(read, caller, intern, window)
        data = [secret_reply(each) for each in found.secrets]
        return SecretPage(data=data, has_more=found.has_more)

    async def _put(
        self, request: Request, caller: Subject, intern: str | None, name: str
    ) -> OneSecret:
        policy.check_name(name)
        body = _BODIES.parsed(request, WriteBody)
        new = NewSecret(Secret(policy.check_value(body.value)), policy.normal_hosts(body.hosts))
        return OneSecret(data=secret_reply(await self._service.put(caller, intern, name, new)))

    async def _delete(self, caller: Subject, intern: str | None, name: str) -> Response:
        policy.check_name(name)
        async with self._database.writing() as write:
            await self._service.delete(write, caller, intern, name)
        return Response(status_code=204)
