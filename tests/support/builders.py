"""Builders of records for tests.

    record = generation_record(cost_nano=25, key_hash=tenant.key.hash)
    tenant = await add_tenant(database, clock=clock, ids=ids)

A builder takes any field by name; the others have consistent default values.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from msgspec import structs

from tests.support.clock import START
from tests.support.seams.accounting import (
    Attempt,
    Attribution,
    Charge,
    Cost,
    CostState,
    GenerationRecord,
    Reservation,
    Usage,
    attempts_json,
)
from tests.support.seams.identity import (
    ApiKey,
    IdentityService,
    KeyKind,
    Manager,
    NewKey,
)
from tollhouse.kernel.clock import to_millis

if TYPE_CHECKING:
    from datetime import datetime

    from tests.support.seams.identity import Account, Workspace
    from tollhouse.kernel.clock import Clock
    from tollhouse.kernel.ids import IdSource
    from tollhouse.storage.database import Database

OPERATOR = Manager(account_id=None, workspace_id=None, operator=True)


@dataclass(frozen=True, slots=True)
class Tenant:
    """A stored account with its default workspace and an API key."""

    account: Account
    workspace: Workspace
    key: ApiKey
    key_text: str = field(repr=False)


async def add_tenant(
    database: Database,
    *,
    clock: Clock,
    ids: IdSource,
    name: str = "Acme",
    kind: KeyKind = KeyKind.API,
) -> Tenant:
    """Store an account with its default workspace and a key, as a first start does."""
    service = IdentityService(clock, ids)
    async with database.writing() as write:
        account, workspace = await service.create_account(write, name)
        issued = await service.create_key(
            write, OPERATOR, account.id, NewKey(name="first", kind=kind)
        )
    return Tenant(account, workspace, issued.key, issued.text)


def api_key(**fields: Any) -> ApiKey:
    """Return a valid API key that is not stored."""
    plain = ApiKey(
        hash="a" * 64,
        kind=KeyKind.API,
        operator=False,
        account_id="account",
        workspace_id="workspace",
        creator_user_id=None,
        intern_id=None,
        name="key",
        label="sk-th-v1-abc...xyz",
        disabled=False,
        expires_at=None,
        created_at=START,
        secret_hash="a" * 64,
    )
    return replace(plain, **fields)


def charge(cost_nano: int = 1_000, **fields: Any) -> Charge:
    """Return an exact charge for a small response."""
    plain = Charge(
        state=CostState.EXACT,
        usage=Usage(input_tokens=10, output_tokens=5),
        cost_nano=cost_nano,
        provider_cost_nano=cost_nano,
        cost=Cost(cost_nano, cost_nano, 0),
    )
    return structs.replace(plain, **fields)


_PLAIN: dict[str, Any] = {
    "id": "gen-1773311400-00000000000000000001",
    "account_id": "account",
    "workspace_id": "workspace",
    "key_hash": "a" * 64,
    "payer_hash": None,
    "api_type": "completions",
    "model": "acme/large",
    "provider": "acme",
    "provider_model": "large-2026",
    "upstream_id": "chatcmpl-1",
    "is_byok": False,
    "streamed": False,
    "cancelled": False,
    "finish_reason": "stop",
    "native_finish_reason": "stop",
    "images": None,
    "free_limited": False,
    "latency_ms": 120,
    "generation_ms": 340,
}


def reservation(
    id_: str, account_id: str, key_hash: str, nano: int, at: datetime, **fields: Any
) -> Reservation:
    """Return credits that a batch sets aside, as many with own provider keys unless told."""
    return Reservation(id_, account_id, key_hash, nano, at, **{"with_own_nano": nano, **fields})


def generation_record(*, cost_nano: int = 1_000, **fields: Any) -> GenerationRecord:
    """Return the record of a complete chat response.

    Args:
        cost_nano: The cost in nano-credits, unless `charge` is among the fields.
        **fields: Fields of the record, or `charge`, `attribution`, `attempts` and `created_at`.
    """
    charged: Charge = fields.pop("charge", None) or charge(cost_nano)
    said: Attribution = fields.pop("attribution", None) or Attribution()
    asked = fields.pop("attempts", [Attempt(provider="acme", status=200, latency_ms=100)])
    created_at: datetime = fields.pop("created_at", START)
    facts: dict[str, Any] = {**charged.usage.tokens, **asdict(said), **fields}
    return GenerationRecord(
        **(
            _PLAIN
            | {
                "cost_state": charged.state.value,
                "cost_nano": charged.cost_nano,
                "provider_cost_nano": charged.provider_cost_nano,
                "attempts_json": attempts_json(asked),
                "created_ms": to_millis(created_at),
            }
            | facts
        )
    )
