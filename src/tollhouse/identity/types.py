"""Accounts, workspaces, users, keys, and the subjects that authentication yields."""

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal, Self, cast

from tollhouse.kernel.errors import Invalid, NotFound


class KeyKind(StrEnum):
    """What a key is for."""

    API = "api"
    """Inference, and reading its own counters."""
    MANAGEMENT = "management"
    """Keys, workspaces, people and money of its account; never inference."""
    INTERN = "intern"
    """What one intern may do."""


class AccountType(StrEnum):
    """How an account pays."""

    PREPAID = "prepaid"
    """With credits that it has; the in-flight budget holds for it alone."""
    SUBSCRIPTION = "subscription"
    """With credits that its subscription brings."""
    ENTERPRISE = "enterprise"
    """Afterwards, by contract."""
    INVOICE = "invoice"
    """Afterwards, by invoice."""

    @property
    def needs_credits(self) -> bool:
        """Whether it is refused where its credits do not suffice."""
        return self in (AccountType.PREPAID, AccountType.SUBSCRIPTION)


@dataclass(frozen=True, slots=True)
class Account:
    """Who pays."""

    id: str
    name: str
    created_at: datetime
    updated_at: datetime | None = None
    type: AccountType = AccountType.PREPAID
    free_limits_exempt: bool = False
    """Whether its requests to free models are not limited."""
    intern_programme: bool = False
    """Whether its workspaces may have interns and vaults."""
    vault_writes: bool = True
    """Whether the secrets of its workspaces may be changed."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """A scope inside an account: keys, batches, interns and secrets belong to one."""

    id: str
    account_id: str
    is_default: bool
    name: str
    slug: str
    description: str | None
    preferences: Mapping[str, object]
    """The wire's optional settings, stored as they came; see `WorkspaceReply`."""
    created_by: str | None
    created_at: datetime
    updated_at: datetime | None = None
    intern_programme: bool = True
    """Whether it may have interns and vaults, where its account may."""
    vault_writes: bool = True
    """Whether its secrets may be changed, where those of its account may."""

    @property
    def plain_http(self) -> bool:
        """Whether what runs for it may reach hosts without TLS."""
        return self.preferences.get("plain_http") is True


@dataclass(frozen=True, slots=True)
class Switches:
    """What an operator lets a workspace do, its account's switches included."""

    intern_programme: bool
    vault_writes: bool


@dataclass(frozen=True, slots=True)
class User:
    """A person who creates keys and interns."""

    id: str
    account_id: str
    name: str
    email: str | None
    created_at: datetime
    updated_at: datetime | None = None


PolicyScope = Literal["account", "workspace", "key"]
PATTERN_NAMES: Final = ("@email", "@credit_card", "@iban", "@api_key")
"""Patterns that stand for what looks like something; any other text stands for itself."""


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """What the requests of an account, a workspace or a key may reach, and what they may hold.

    Names may have `*` for any characters; an empty tuple of what is allowed allows nothing.
    """

    scope: PolicyScope
    allowed_models: tuple[str, ...] | None = None
    blocked_models: tuple[str, ...] = ()
    allowed_providers: tuple[str, ...] | None = None
    """By slug."""
    blocked_providers: tuple[str, ...] = ()
    allowed_endpoints: tuple[str, ...] | None = None
    """As provider's slug, colon, provider's name of the model."""
    blocked_endpoints: tuple[str, ...] = ()
    data_collection: Literal["allow", "deny"] = "allow"
    """Whether providers may be asked that keep what they are sent."""
    patterns: tuple[str, ...] = ()
    """Texts that no request may hold; `@email` and the like stand for what looks like one."""
    guardrails: tuple[str, ...] = ()
    """Slugs of the guardrails that must let every request pass."""

    @classmethod
    def from_json(cls, scope: PolicyScope, rules: Mapping[str, Any]) -> Self:
        """Return a policy with the rules of a JSON object, whose names are those of the fields."""
        fields: dict[str, Any] = {
            name: tuple(cast("list[str]", rule)) if isinstance(rule, list) else rule
            for name, rule in rules.items()
        }
        return cls(scope, **fields)

    @property
    def whose(self) -> str:
        """What it is called in a refusal."""
        return f"The {self.scope}'s policy"


@dataclass(frozen=True, slots=True)
class PayerPolicy(AccessPolicy):
    """The policy of a key that answers for an intern, as it holds for the intern's key."""

    @property
    def whose(self) -> str:
        """What it is called in a refusal."""
        return "The policy of the key that answers for this intern"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as it is stored: hashes, never its text."""

    hash: str
    """Names it for ever."""
    kind: KeyKind
    operator: bool
    account_id: str
    workspace_id: str
    creator_user_id: str | None
    intern_id: str | None
    name: str
    label: str
    disabled: bool
    expires_at: datetime | None
    created_at: datetime
    updated_at: datetime | None = None
    secret_hash: str | None = None
    """SHA-256 of its text, by which a caller is known; None while it has none."""
    payer_hash: str | None = None
    """The key that answers for this one, an intern's; None where it answers for itself."""


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A key together with its new text, which is shown this once."""

    key: ApiKey
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Subject:
    """The authenticated owner of a key."""

    key_hash: str
    kind: KeyKind
    operator: bool
    account_id: str
    workspace_id: str
    creator_user_id: str | None
    intern_id: str | None
    label: str
    policies: tuple[AccessPolicy, ...] = ()
    """Of its account, its workspace, itself and its payer: each must allow what is asked."""
    payer_hash: str | None = None
    """The key that answers for it: its limit holds, too."""
    key_hashes: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The keys whose limits hold, its own first."""

    def __post_init__(self) -> None:
        own, payer = self.key_hash, self.payer_hash
        object.__setattr__(self, "key_hashes", (own,) if payer is None else (own, payer))


@dataclass(frozen=True, slots=True)
class LocalOperator:
    """Whoever may open the data folder: a command on this machine, without a key."""


Caller = Subject | LocalOperator


@dataclass(frozen=True, slots=True)
class Manager:
    """A caller that may manage.

    An operator runs the installation: it sees every account and may make accounts and credits.
    Any other manager sees its own account alone.
    """

    account_id: str | None
    """The account that is meant where none is named; None for a local operator."""
    workspace_id: str | None
    operator: bool
    user_id: str | None = None
    """The user whose key it is, where known."""
    key_hash: str | None = None
    """The key that it came with; None for a local operator."""

    @property
    def actor(self) -> str:
        """What the record calls it."""
        return self.key_hash or "operator"

    def sees_account(self, account_id: str) -> bool:
        """Tell whether it may know that an account exists."""
        return self.operator or self.account_id == account_id

    def account_for(self, wanted: str | None) -> str:
        """Return the account that an operation is about; its own where none is `wanted`.

        Raises `NotFound` for another than its own, unless it is an operator, and `Invalid` where
        none is named and it has none of its own.
        """
        chosen = wanted or self.account_id
        if chosen is None:
            raise Invalid("Name the account: account_id.")
        if not self.sees_account(chosen):
            raise NotFound("No such account.")
        return chosen


@dataclass(frozen=True, slots=True)
class NewKey:
    """What a caller asks for when it makes a key."""

    name: str
    kind: KeyKind = KeyKind.API
    operator: bool = False
    workspace_id: str | None = None
    creator_user_id: str | None = None
    intern_id: str | None = None
    expires_at: datetime | None = None
    payer_hash: str | None = None
    """The key that answers for it; for an intern's alone."""


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Which keys a list shows."""

    account_id: str
    workspace_id: str | None
    include_disabled: bool
    unexpired_at: datetime | None
    """Hide keys that have expired by then; None shows them."""


def answered_for(key: ApiKey, payer: ApiKey | None) -> ApiKey:
    """Return a key as it is usable: no more than its payer, which is None where that is deleted."""
    if payer is None:
        return replace(key, disabled=True)
    ends = [each.expires_at for each in (key, payer) if each.expires_at is not None]
    return replace(key, disabled=key.disabled or payer.disabled, expires_at=min(ends, default=None))


def check_guardrails(policy: AccessPolicy, known: Collection[str]) -> None:
    """Refuse a policy with an unknown guardrail (`Invalid`); the message names the nearest."""
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
