"""The rules of secrets: names, values, hosts, and which secret an intern's request receives. Pure.

    own vault ──┐
    attached  ──┼──> by name the first wins ──> bound to this very host? ──> released
    workspace ──┘                               no: nothing of that name is

`resolve` and `verdict` are the one place that decides this: listing, explaining, releasing and
deciding what to read all ask here, so that they cannot disagree.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tollhouse.kernel import hosts
from tollhouse.kernel.errors import Invalid, Unavailable
from tollhouse.vault.types import GATEWAY_HOST, Resolved, Scope, StoredSecret, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tollhouse.identity.types import Switches

NAME: Final = r"^(?!.*__)[a-z]([a-z0-9_]*[a-z0-9])?$"
LONGEST_NAME: Final = 255
LONGEST_VALUE: Final = 65_536
MOST_HOSTS: Final = 100
MOST_COPIED: Final = 100
LARGEST_BODY: Final = 1_048_576
"""Bytes of a body; one that long holds more than a secret may, and is refused for that."""

_NAME: Final = re.compile(NAME[1:-1])
_RANK: Final = {scope: at for at, scope in enumerate(Scope)}
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NOT_IN_A_HEADER: Final = re.compile(r"[\r\n\0]")
_HOST_NAME_PROBLEMS: Final = {
    hosts.HostNameProblem.NOT_ASCII: "write an international name in its ASCII form, xn--...",
    hosts.HostNameProblem.TOO_LONG: f"must have at most {hosts.LONGEST} characters.",
    hosts.HostNameProblem.NO_NAME: "must be a host name such as api.example.com, without scheme, "
    "port, path or wildcard.",
    hosts.HostNameProblem.ADDRESS: "must be a name and not an IP address.",
}


class WritesDisabled(Unavailable):
    """The operator lets nobody change these secrets now."""

    def __init__(self) -> None:
        super().__init__(
            "Changes to secrets are switched off here; an operator can switch them on.",
            metadata={"reason": "writes_disabled", "retryable": False},
        )


def check_name(name: str, field: str = "name") -> str:
    """Return a secret's name; `Invalid` if it is none. The refusal begins with the field."""
    if not 1 <= len(name) <= LONGEST_NAME or not _NAME.fullmatch(name):
        raise Invalid(
            f"{field}: must have 1 to {LONGEST_NAME} characters: lower-case letters, digits and "
            "single underscores, a letter first and no underscore last."
        )
    return name


def check_names(names: Sequence[str]) -> Sequence[str]:
    """Return the names of secrets to copy; `Invalid` unless each is a name, and comes once."""
    if not 1 <= len(names) <= MOST_COPIED or len(set(names)) < len(names):
        raise Invalid(f"names: must have 1 to {MOST_COPIED} entries, each once.")
    return [check_name(name) for name in names]


def check_value(value: str, field: str = "value") -> str:
    """Return a secret's value; no message repeats any of it.

    Raises `Invalid` where it is empty, too long, no Unicode, or could not stand in a header.
    """
    if not 1 <= len(value) <= LONGEST_VALUE:
        raise Invalid(f"{field}: must have 1 to {LONGEST_VALUE} characters.")
    if _NOT_IN_A_HEADER.search(value):
        message = f"{field}: must not contain a line break or U+0000: no header can carry them."
        raise Invalid(message)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Invalid(f"{field}: must be valid Unicode.") from None
    return value


def normal_hosts(names: Sequence[str]) -> tuple[str, ...]:
    """Return the hosts that a secret is bound to: lower case, each once, in the order given.

    Raises `Invalid` where there are none or too many, or one of them is no host name.
    """
    if not 1 <= len(names) <= MOST_HOSTS:
        raise Invalid(f"hosts: must have 1 to {MOST_HOSTS} entries.")
    return tuple(dict.fromkeys(normal_host(host, f"hosts.{at}") for at, host in enumerate(names)))


def normal_host(host: str, field: str = "host") -> str:
    """Return a host name as secrets are bound to it; `Invalid` if it is none."""
    try:
        name = hosts.normal_host(host)
    except hosts.InvalidHostName as error:
        raise Invalid(f"{field}: {_HOST_NAME_PROBLEMS[error.why]}") from None
    if name == GATEWAY_HOST:
        raise Invalid(f"{field}: {GATEWAY_HOST} is the gateway itself, which needs no secret.")
    return name


def intern_uuid(intern_id: str) -> str:
    """Return an intern's id in its canonical form; `Invalid` if it is no UUID."""
    if not _UUID.fullmatch(intern_id):
        raise Invalid("internId: must be a UUID.")
    return intern_id.lower()


def check_writes(switches: Switches) -> None:
    """Refuse changes of secrets where an operator has switched them off (`WritesDisabled`)."""
    if not switches.vault_writes:
        raise WritesDisabled


def resolve(layers: Iterable[tuple[Scope, Iterable[StoredSecret]]]) -> dict[str, Resolved]:
    """Return what each name means, in the order of the names' bytes."""
    found: dict[str, Resolved] = {}
    for scope, secrets in sorted(layers, key=lambda layer: _RANK[layer[0]]):
        for secret in secrets:
            first = found.get(secret.name)
            found[secret.name] = (
                Resolved(secret, scope)
                if first is None
                else replace(first, hidden=(*first.hidden, (scope, secret)))
            )
    return {name: found[name] for name in sorted(found)}  # ASCII: the order of their bytes


def verdict(
    resolved: Mapping[str, Resolved], name: str, host: str, *, release_unbound: bool
) -> Verdict:
    """Tell whether the secret of a name goes to a host, which is normalised as stored hosts are."""
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
