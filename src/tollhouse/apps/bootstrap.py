"""The first start: an account with a workspace, its credits, and two keys that are shown once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tollhouse.accounting.types import PostingKind
from tollhouse.identity.types import KeyKind, Manager, NewKey
from tollhouse.kernel.money import round_to_nano
from tollhouse.kernel.pages import Window

if TYPE_CHECKING:
    from decimal import Decimal

    from tollhouse.accounting.service import AccountingService
    from tollhouse.identity.service import IdentityService
    from tollhouse.storage.transaction import Read, Write

ACCOUNT_NAME = "Default"
_FIRST_START = 0x746F6C6D
OPERATOR = Manager(account_id=None, workspace_id=None, operator=True)


@dataclass(frozen=True, slots=True)
class Bootstrapped:
    """What a first start made."""

    api_key: str = field(repr=False)
    management_key: str = field(repr=False)
    account_id: str
    workspace_id: str


async def is_empty(read: Read, identity: IdentityService) -> bool:
    """Tell whether no account was ever made."""
    return not (await identity.accounts(read, OPERATOR, Window(limit=1))).total


async def bootstrap_if_empty(
    write: Write, identity: IdentityService, accounting: AccountingService, grant: Decimal
) -> Bootstrapped | None:
    """Make the first account where there is none yet; two first starts at once make one.

    Returns:
        What was made; None where there is an account already.
    """
    await write.alone(_FIRST_START)
    if not await is_empty(write, identity):
        return None
    return await bootstrap(write, identity, accounting, grant)


async def bootstrap(
    write: Write, identity: IdentityService, accounting: AccountingService, grant: Decimal
) -> Bootstrapped:
    """Make the account, its workspace, its credits and its keys.

    Args:
        write: The transaction: all of it happens or none.
        identity: Makes the account and the keys.
        accounting: Grants the credits.
        grant: Credits that the account is given; not a purchase.
    """
    account, workspace = await identity.create_account(write, ACCOUNT_NAME)
    await identity.change_account(write, OPERATOR, account.id, intern_programme=True)
    nano = round_to_nano(grant)
    if nano:
        await accounting.add_credits(write, account.id, PostingKind.GRANT, nano, note="first start")
    return await new_keys(write, identity, account.id, workspace.id)


async def new_keys(
    write: Write, identity: IdentityService, account_id: str, workspace_id: str
) -> Bootstrapped:
    """Make an API key and an operator's management key of an account."""
    api = await identity.create_key(
        write, OPERATOR, account_id, NewKey("First API key", workspace_id=workspace_id)
    )
    management = await identity.create_key(
        write,
        OPERATOR,
        account_id,
        NewKey(
            "First management key",
            kind=KeyKind.MANAGEMENT,
            operator=True,
            workspace_id=workspace_id,
        ),
    )
    return Bootstrapped(api.text, management.text, account_id, workspace_id)
