"""Secrets as people read them: what may be told of each, and whether it goes to a host. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tollhouse.cli.output import Column, Item, Listing, Record, Report, field

_SHOWN_DIGITS: Final = len("sha256:") + 12
_RELEASED: Final = "released"
_OWNERS: Final = {"intern": "intern's own", "attached": "attached", "workspace": "workspace's"}
_NO_HOST: Final = "bound to no host"


def hosts_of(secret: Item) -> str | None:
    """Return the hosts that a secret is bound to; None for none."""
    hosts = secret["hosts"]
    return None if hosts is None else ", ".join(hosts)


def secret_report(secret: Item) -> Report:
    """Return what is shown of one secret."""
    return Report(secret, Record({**secret, "hosts": hosts_of(secret)}))


def secrets_listing(secrets: Sequence[Item]) -> Listing:
    """Return what is shown of a vault."""
    return Listing(secrets, [field("name"), _HOSTS, _FINGERPRINT, field("created_at", "created")])


def effective_listing(secrets: Sequence[Item]) -> Listing:
    """Return what is shown of what an intern receives."""
    return Listing(secrets, [field("name"), field("scope"), _HOSTS, _FINGERPRINT])


def why_listing(secrets: Sequence[Item], host: str) -> Listing:
    """Return whether each secret goes to a host, and why."""
    columns = [
        field("name"),
        field("scope"),
        Column("sent", lambda secret: secret["verdict"] == _RELEASED),
        Column("why", lambda secret: why(secret, host)),
        Column("hidden", hidden),
    ]
    return Listing(secrets, columns)


def why(secret: Item, host: str) -> str:
    """Return in words why a secret goes to a host, or why not."""
    bound = hosts_of(secret)
    match secret["verdict"]:
        case "released" if bound is None:
            return f"{_NO_HOST}, and such secrets go to any (vault.release_unbound)"
        case "released":
            return f"bound to {host}"
        case "unbound":
            return f"{_NO_HOST}: store it again with --host"
        case "other_host":
            return f"bound to {bound}"
        case other:
            return str(other)


def hidden(secret: Item) -> str | None:
    """Return the secrets of the same name that lost against one, and where they are."""
    lost = [f"{_OWNERS[each['scope']]} ({_bound(each)})" for each in secret["hidden"]]
    return "; ".join(lost) or None


def _bound(secret: Item) -> str:
    hosts = hosts_of(secret)
    return _NO_HOST if hosts is None else f"bound to {hosts}"


_HOSTS: Final = Column("hosts", hosts_of)
_FINGERPRINT: Final = Column(
    "fingerprint",
    lambda secret: secret["fingerprint"],
    short=lambda text: text[:_SHOWN_DIGITS],
)
