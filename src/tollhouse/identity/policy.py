"""Who may do what: pure decisions about callers."""

from __future__ import annotations

import difflib
from dataclasses import replace
from typing import TYPE_CHECKING

from tollhouse.identity.types import KeyKind, LocalOperator, Manager, Subject
from tollhouse.kernel.errors import Forbidden, Invalid, NotFound, TollhouseError, Unauthenticated

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from tollhouse.identity.types import AccessPolicy, ApiKey, Caller, PolicyScope

MANAGEMENT_ONLY = "This operation needs a management key."


def usable(key: ApiKey, now: datetime) -> bool:
    """Tell whether a stored key authenticates anybody at this instant."""
    return not key.disabled and (key.expires_at is None or now < key.expires_at)


def answered_for(key: ApiKey, payer: ApiKey | None) -> ApiKey:
    """Return a key as it is usable: no more and no longer than the one that answers for it.

    Args:
        key: A key that has a payer.
        payer: That one; None where it is deleted.
    """
    if payer is None:
        return replace(key, disabled=True)
    ends = [each.expires_at for each in (key, payer) if each.expires_at is not None]
    return replace(key, disabled=key.disabled or payer.disabled, expires_at=min(ends, default=None))


def policy_owners(key: ApiKey) -> Mapping[PolicyScope, str]:
    """Return whose policies hold for a key's requests."""
    return {"account": key.account_id, "workspace": key.workspace_id, "key": key.hash}


def check_guardrails(policy: AccessPolicy, known: Collection[str]) -> None:
    """Make sure that there is every guardrail that a policy names.

    Args:
        policy: Somebody's, about to be set.
        known: Slugs of the guardrails that are configured.

    Raises:
        Invalid: One is unknown; the message names the nearest.
    """
    for name in policy.guardrails:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            there_are = ", ".join(sorted(known)) or "none"
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {there_are}."
            raise Invalid(f"guardrails: no guardrail is called {name!r}; {hint}")


def subject_of(key: ApiKey, policies: tuple[AccessPolicy, ...] = ()) -> Subject:
    """Return the subject that a key authenticates."""
    return Subject(
        key_hash=key.hash,
        kind=key.kind,
        operator=key.operator,
        account_id=key.account_id,
        workspace_id=key.workspace_id,
        creator_user_id=key.creator_user_id,
        intern_id=key.intern_id,
        label=key.label,
        policies=policies,
        payer_hash=key.payer_hash,
    )


def manager(caller: Caller, refusal: type[TollhouseError] = Forbidden) -> Manager:
    """Return what a caller may manage.

    Args:
        caller: Who asks.
        refusal: `Forbidden`, or `Unauthenticated` for the operations whose published error list
            has a 401 and no 403.

    Raises:
        TollhouseError: The refusal, where the caller may not manage anything.
    """
    if isinstance(caller, LocalOperator):
        return Manager(account_id=None, workspace_id=None, operator=True)
    if caller.kind is not KeyKind.MANAGEMENT:
        raise refusal(MANAGEMENT_ONLY)
    return Manager(
        caller.account_id,
        caller.workspace_id,
        operator=caller.operator,
        user_id=caller.creator_user_id,
        key_hash=caller.key_hash,
    )


def operator(caller: Caller) -> Manager:
    """Return the manager of the whole installation.

    Raises:
        Forbidden: The caller does not run the installation.
    """
    who = manager(caller)
    if not who.operator:
        message = "This operation needs an operator's management key."
        raise Forbidden(message)
    return who


def key_holder(caller: Caller) -> Subject:
    """Return the subject of a caller that came with a key.

    Raises:
        Unauthenticated: The caller came through the control socket, without a key.
    """
    if isinstance(caller, LocalOperator):
        message = "This operation answers for the calling key; send one."
        raise Unauthenticated(message)
    return caller


def inference_subject(caller: Caller) -> Subject:
    """Return the subject that an inference request is billed to.

    Raises:
        Forbidden: A management key, which never runs inference.
        Unauthenticated: No key at all.
    """
    subject = key_holder(caller)
    if subject.kind is KeyKind.MANAGEMENT:
        message = "A management key cannot run inference; use an API key."
        raise Forbidden(message)
    return subject


def account_for(who: Manager, wanted: str | None) -> str:
    """Return the account that an operation is about.

    Args:
        who: The manager that asks.
        wanted: The account that it names; None for its own.

    Raises:
        NotFound: Another account than its own, and it is no operator.
        Invalid: None named, and it has none of its own.
    """
    chosen = wanted or who.account_id
    if chosen is None:
        message = "Name the account: account_id."
        raise Invalid(message)
    if not sees_account(who, chosen):
        message = "No such account."
        raise NotFound(message)
    return chosen


def sees_account(who: Manager, account_id: str) -> bool:
    """Tell whether a manager may know that an account exists."""
    return who.operator or who.account_id == account_id
