"""Where own keys of providers come in the order of asking. Pure.

    usable_by(keys, subject)          those of an account's keys that are for a caller
    attempts(model, endpoints, ...)   a model's endpoints in their order -> who is asked, with what

    keys that are first      of each endpoint by their places, whatever `provider.order` says
    the gateway's own keys   not at providers where a key for the model is required, or a key is
                             the only way
    keys that are fallbacks
    keys that cool down      the providers refused them of late

A key whose text cannot be used is never asked, and its rules hold all the same.

Source: the published clients' description of `is_required`, `is_byok_only`, `is_fallback` and
`sort_order`; https://openrouter.ai/docs/guides/overview/auth/byok for provider ordering.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tollhouse.identity.types import Subject
    from tollhouse.inference.types import Endpoint, Model
    from tollhouse.provider_keys.types import OwnKey


@dataclass(frozen=True, slots=True)
class OwnKeyUse:
    """The own keys that a request may use, in the order of their places."""

    keys: Sequence[OwnKey] = ()
    cools: Callable[[OwnKey], bool] = lambda _: False
    """Whether its provider refused a key of late."""
    is_out: Callable[[Endpoint], bool] = lambda _: False
    """Whether an endpoint failed of late, whatever the key."""

    def __bool__(self) -> bool:
        """Tell whether there are any."""
        return bool(self.keys)


def usable_by(keys: Sequence[OwnKey], subject: Subject) -> Sequence[OwnKey]:
    """Return the keys that are for a caller: of its workspace, for its user and its key.

    What is said of a key holds for an intern that the key answers for, too.
    """
    return [key for key in keys if _is_for(key, subject)]


def _is_for(key: OwnKey, subject: Subject) -> bool:
    rules = key.rules
    if rules.disabled or key.stored.workspace_id != subject.workspace_id:
        return False
    users, hashes = rules.allowed_user_ids, rules.allowed_api_key_hashes
    if users is not None and subject.creator_user_id not in users:
        return False
    return hashes is None or not set(hashes).isdisjoint(subject.key_hashes)


def attempts(
    model: Model,
    shared_ranked: Sequence[Endpoint],
    own_ranked: Sequence[Endpoint],
    use: OwnKeyUse,
    admits: Callable[[Endpoint, OwnKey | None], bool],
) -> Sequence[tuple[Endpoint, OwnKey | None]]:
    """Return who is asked, first to last: an endpoint, with an own key or the gateway's.

    The endpoints are the model's in the order in which they are asked with the gateway's keys, and
    in that for own ones; `admits` tells whether the request wants an endpoint with a key.
    """
    closed = closed_providers(model, use.keys)
    first: list[tuple[Endpoint, OwnKey | None]] = []
    fallback, cooling_first, cooling_fallback = first.copy(), first.copy(), first.copy()
    shared = [
        (endpoint, None)
        for endpoint in shared_ranked
        if endpoint.provider not in closed and admits(endpoint, None)
    ]
    for endpoint in own_ranked:
        for key in _keys_for(model, endpoint, use.keys):
            if not admits(endpoint, key):
                continue
            if key.rules.is_fallback:
                group = cooling_fallback if use.cools(key) else fallback
            else:
                group = cooling_first if use.cools(key) else first
            group.append((endpoint, key))
    return [*first, *shared, *fallback, *cooling_first, *cooling_fallback]


def closed_providers(model: Model, keys: Sequence[OwnKey]) -> set[str]:
    """Return the providers that a model does not ask with the gateway's keys."""
    return {
        key.stored.provider
        for key in keys
        if key.rules.is_byok_only or (key.rules.is_required and _covers(key, model))
    }


def _keys_for(model: Model, endpoint: Endpoint, keys: Sequence[OwnKey]) -> Iterator[OwnKey]:
    for key in keys:
        usable = key.secret is not None and key.stored.provider == endpoint.provider
        if usable and _covers(key, model):
            yield key


def _covers(key: OwnKey, model: Model) -> bool:
    allowed = key.rules.allowed_models
    return allowed is None or not {model.id, *model.aliases}.isdisjoint(allowed)
