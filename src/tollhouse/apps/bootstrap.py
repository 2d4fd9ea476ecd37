"""The first start: an account with a workspace, its credits, and two keys that are shown once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tollhouse.accounting.types import PostingKind
from tollhouse.identity.types import KeyKind, Manager, NewKey
from tollhouse.kernel.money import round_to_nano
from tollhouse.kernel.pages import Window

if TYPE_CHECKING:
    from tollhouse.accounting.service import AccountingService
    from tollhouse.identity.service import IdentityService
    from tollhouse.settings.sections import Settings
    from tollhouse.storage.database import Read, Write

ACCOUNT_NAME = "Default"
_FIRST_START = 0x746F6C6D
FIRST_MODEL = "simulated/agent"
"""What interns of the first workspace run with, where it can be had: a try needs no model key."""
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
    write: Write, identity: IdentityService, accounting: AccountingService, settings: Settings
) -> Bootstrapped | None:
    """Make the first account; None where there is one. Two first starts at once make one."""
    await write.alone(_FIRST_START)
    if not await is_empty(write, identity):
        return None
    return await bootstrap(write, identity, accounting, settings)


async def bootstrap(
    write: Write, identity: IdentityService, accounting: AccountingService, settings: Settings
) -> Bootstrapped:
    """Make the account, its workspace, its credits, which are no purchase, and its keys."""
    account, workspace = await identity.create_account(write, ACCOUNT_NAME)
    await identity.change_account(write, OPERATOR, account.id, intern_programme=True)
    if _simulates(settings):
        facts = {"default_text_model": FIRST_MODEL}
        await identity.change_workspace(write, OPERATOR, account.id, workspace.id, facts)
    nano = round_to_nano(settings.accounting.initial_grant)
    if nano:
        await accounting.add_credits(write, account.id, PostingKind.GRANT, nano, note="first start")
    return await new_keys(write, identity, account.id, workspace.id)


def _simulates(settings: Settings) -> bool:
    """Tell whether nothing but simulated models can answer."""
    return {provider.kind for provider in settings.providers} == {"simulated"}


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
