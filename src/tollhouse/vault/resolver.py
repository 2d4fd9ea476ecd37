"""Which secret a name means, and whether it goes to a host: the one place that decides it. Pure.

    own vault ──┐
    attached  ──┼──> by name the first wins ──> bound to this very host? ──> released
    workspace ──┘                               no: nothing of that name is

Listing, explaining, releasing and deciding what to read all ask here, so that they cannot disagree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollhouse.vault.types import Resolved, Scope, StoredSecret, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def resolve(layers: Iterable[tuple[Scope, Iterable[StoredSecret]]]) -> dict[str, Resolved]:
    """Return what each name means.

    Args:
        layers: Scopes with their secrets, in any order.

    Returns:
        Name -> its secret, in the order of the names' bytes.
    """
    found: dict[str, Resolved] = {}
    for scope, secrets in sorted(layers, key=lambda layer: _RANK[layer[0]]):
        for secret in secrets:
            name = secret.name
            first = found.get(name)
            if first is None:
                found[name] = Resolved(secret, scope)
            else:
                hidden = (*first.hidden, (scope, secret))
                found[name] = Resolved(first.secret, first.scope, hidden)
    return {name: found[name] for name in sorted(found)}  # ASCII: the order of their bytes


def verdict(
    resolved: Mapping[str, Resolved], name: str, host: str, *, release_unbound: bool
) -> Verdict:
    """Tell whether the secret of a name goes to a host.

    Args:
        resolved: What names mean for the intern.
        name: The secret's.
        host: Normalised, as hosts are stored; compared for equality and nothing else.
        release_unbound: Whether a secret without hosts goes to any.
    """
    found = resolved.get(name)
    if found is None:
        return Verdict.UNKNOWN_NAME
    hosts = found.secret.hosts
    if hosts is None:
        return Verdict.RELEASED if release_unbound else Verdict.UNBOUND
    return Verdict.RELEASED if host in hosts else Verdict.OTHER_HOST


def is_bound(resolved: Mapping[str, Resolved], host: str, *, release_unbound: bool) -> bool:
    """Tell whether any secret goes to a host; see `verdict`."""
    if release_unbound and any(each.secret.hosts is None for each in resolved.values()):
        return True
    return any(host in (each.secret.hosts or ()) for each in resolved.values())


_RANK = {scope: at for at, scope in enumerate(Scope)}
