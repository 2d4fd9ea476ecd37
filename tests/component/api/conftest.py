"""The control plane in this process, behind a fake gate that only authenticates."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
import sqlalchemy as sa
import yaml
from fastapi import FastAPI

from tests.component.accounting.ledger_reader import charge_writer
from tests.support.builders import OPERATOR
from tests.support.clock import FakeClock
from tests.support.ids import SequentialIds
from tests.support.seams.accounting import AccountingService, GenerationRecord, LedgerService
from tests.support.seams.accounting import endpoints as accounting_endpoints
from tests.support.seams.api import control_app, error_response, respond
from tests.support.seams.identity import (
    Authenticator,
    IdentityService,
    IssuedKey,
    KeyKind,
    LocalOperator,
    NewKey,
    set_caller,
)
from tests.support.seams.identity import endpoints as identity_endpoints
from tollhouse.kernel.errors import Unauthenticated
from tollhouse.storage.database import Database
from tollhouse.storage.notifications import Topic

LOCAL = "local"
GUARDRAILS = ("privacy", "injection")
"""The guardrails that policies may name."""
INTERN_ID = "77777777-0000-4000-8000-000000000007"

Client = httpx2.AsyncClient


@dataclass(frozen=True, slots=True)
class Acme:
    """An account with a key of each kind, and clients that use them."""

    account_id: str
    workspace_id: str
    api_key: IssuedKey
    management_key: IssuedKey
    operator_key: IssuedKey
    intern_key: IssuedKey
    api: Client
    management: Client
    operator: Client
    intern: Client


@pytest.fixture
def database_url(migrated_sqlite: sa.URL) -> sa.URL:
    """One database is enough for endpoints: repositories and settlement are tested on both."""
    return migrated_sqlite


@pytest.fixture
def authenticator(database: Database, clock: FakeClock) -> Authenticator:
    return Authenticator(database, clock)


@pytest.fixture
def identity(clock: FakeClock, ids: SequentialIds) -> IdentityService:
    return IdentityService(clock, ids, GUARDRAILS)


@pytest.fixture
def stale(database: Database) -> list[str | None]:
    """The accounts that changed, or their money or limits, in order."""
    stale: list[str | None] = []
    database.notifications.subscribe(Topic.ACCOUNT, stale.append)
    return stale


@pytest.fixture
def accounting(clock: FakeClock, ids: SequentialIds) -> AccountingService:
    return AccountingService(clock, ids)


class LateBound:
    """Forwards to an object that each test sets: its database, its clock, its services."""

    def __init__(self) -> None:
        self.is_: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.is_, name)


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """One control plane for all tests: its routes take longer to build than a test."""

    app: FastAPI
    parts: dict[str, LateBound]


@pytest.fixture(scope="session")
def plane() -> ControlPlane:
    parts = {
        name: LateBound() for name in ("accounting", "identity", "database", "clock", "ledger")
    }
    identity: Any = parts["identity"]
    database: Any = parts["database"]
    app = control_app(
        identity_endpoints.router(identity, database),
        accounting_endpoints.router(**parts, settled=_nothing_pends),
    )
    return ControlPlane(app, parts)


@pytest.fixture
async def connect(
    plane: ControlPlane,
    database: Database,
    clock: FakeClock,
    authenticator: Authenticator,
    identity: IdentityService,
    accounting: AccountingService,
) -> AsyncIterator[Callable[[str], Client]]:
    """Makes clients of the control plane; each sends one key, or is the local operator."""
    mine = {
        "accounting": accounting,
        "identity": identity,
        "database": database,
        "clock": clock,
        "ledger": LedgerService(clock),
    }
    for name, part in plane.parts.items():
        part.is_ = mine[name]

    async def front(scope: Any, receive: Any, send: Any) -> None:
        key = dict(scope["headers"])[b"authorization"].decode().removeprefix("Bearer ")
        try:
            caller = LocalOperator() if key == LOCAL else await authenticator.authenticate(key)
        except Unauthenticated as error:
            await respond(send, *error_response(error))
            return
        set_caller(scope, caller)
        await plane.app(scope, receive, send)

    async with AsyncExitStack() as stack:
        clients: list[Client] = []

        def client(key: str) -> Client:
            clients.append(
                Client(
                    transport=httpx2.ASGITransport(app=front, raise_app_exceptions=False),
                    base_url="http://gateway",
                    headers={"Authorization": f"Bearer {key}"},
                )
            )
            stack.push_async_callback(clients[-1].aclose)
            return clients[-1]

        yield client


@pytest.fixture
def local(connect: Callable[[str], Client]) -> Client:
    """A command on the same machine, without a key."""
    return connect(LOCAL)


def message(reply: httpx2.Response, status: int) -> str:
    """Return the message of a refusal, and check its envelope."""
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/json"
    error = reply.json()["error"]
    assert error["code"] == status
    return error["message"]


SHOWN: dict[str, Any] = yaml.load(
    Path(__file__).with_name("shown.yaml").read_bytes(), yaml.CSafeLoader
)


def shown(name: str, **named: object) -> Any:
    """Return what is shown of something, with what the test names in its place."""

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {each: filled(inner) for each, inner in value.items()}
        if isinstance(value, list):
            return [filled(each) for each in value]
        return named.get(value[1:-1], value) if isinstance(value, str) else value

    return filled(SHOWN[name])


async def _nothing_pends() -> None:
    """Stands in for the settler: these tests book charges themselves."""


async def add_account(
    database: Database, identity: IdentityService, connect: Callable[[str], Client], name: str
) -> Acme:
    """Store an account with a key of each kind."""
    async with database.writing() as write:
        account, workspace = await identity.create_account(write, name)

        async def issue(kind: KeyKind, **more: Any) -> IssuedKey:
            wanted = NewKey(name=f"{name} {kind}", kind=kind, **more)
            return await identity.create_key(write, OPERATOR, account.id, wanted)

        api = await issue(KeyKind.API)
        management = await issue(KeyKind.MANAGEMENT)
        operator = await issue(KeyKind.MANAGEMENT, operator=True)
        intern = await issue(KeyKind.INTERN, intern_id=INTERN_ID)
    return Acme(
        account_id=account.id,
        workspace_id=workspace.id,
        api_key=api,
        management_key=management,
        operator_key=operator,
        intern_key=intern,
        api=connect(api.text),
        management=connect(management.text),
        operator=connect(operator.text),
        intern=connect(intern.text),
    )


@pytest.fixture
async def acme(
    database: Database, identity: IdentityService, connect: Callable[[str], Client]
) -> Acme:
    return await add_account(database, identity, connect, "Acme")


@pytest.fixture
async def other(
    database: Database, identity: IdentityService, connect: Callable[[str], Client]
) -> Acme:
    """A second account, unrelated to the first."""
    return await add_account(database, identity, connect, "Other")


@pytest.fixture
async def book(database: Database) -> AsyncIterator[Callable[..., Any]]:
    """Books generations as the data plane does."""
    writer = charge_writer(database)

    async def write(*records: GenerationRecord) -> None:
        await writer.write(records)

    yield write
    await writer.close()
