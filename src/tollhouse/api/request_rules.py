"""Decisions of the way in, before any route: origins, hosts, addresses, credentials. Pure."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Final

from tollhouse.kernel.errors import Invalid, UnsupportedMediaType

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


PREFIXES: Final = ("/api/v1", "/v1")
OPEN_TO_ALL: Final = ("/models", "/model", "/providers")
"""Routes that need no key, for GET and HEAD: they tell what anybody may know."""
AFTER_RECOVERY: Final = ("/batches", "/interns")
"""Routes that wait while a start tidies what a killed server left of batches and interns."""
STRICT_KEY_TEXT: Final = ("/interns", "/vault")
WITH_REASON: Final = ("/interns", "/vault")
"""Routes whose errors say a reason, and whether another try makes sense."""
DEADLINE_SECONDS: Final = 10
"""How long an operation on interns or secrets may take."""
CHAT_DEADLINE_SECONDS: Final = 300
"""How long a chat with an intern may take until its stream begins."""
INVOKE_DEADLINE_SECONDS: Final = 60
"""How long an intern may take until it has taken a prompt that nobody waits for."""

KEY_MISSING: Final = "No auth credentials found"
KEY_INVALID_OR_MISSING: Final = "Invalid or missing API key"
REGION_REFUSED: Final = "This operation is not available on a regional hostname."

_BEARER: Final = b"bearer "
_SENT_ONCE: Final = (b"host", b"authorization", b"x-api-key")
"""Headers of which a proxy in front of us may have read another copy than we do."""
_SAID_ONCE: Final = (b"idempotency-key",)
"""Headers that may be repeated, but say one thing."""
_CODING: Final = re.compile(r"[\w.-]{1,32}", re.ASCII)
_HOST: Final = re.compile(r"(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_CHAT: Final = re.compile(r"/interns/[^/]+/(?:chat/completions|(invoke))")

_SIGNED: Final = re.compile(r"/interns/[^/]+/slack/events")
"""Routes whose requests are signed by a chat service."""


def require_unambiguous(
    http_version: str, sent: Sequence[tuple[bytes, bytes]], headers: Mapping[bytes, bytes]
) -> None:
    """Refuse a request that does not say once for which host it is, or with which key.

    Its headers are given as they came, names in lower case, and by name. HTTP 1.0 knows no Host.

    Raises:
        Invalid: Host is missing, or a header that may stand there once stands there twice, or one
            that says one thing says two.

    Source: RFC 9112 section 3.2 (Host), RFC 9110 section 5.3 (a field that is no list).
    """
    if len(sent) != len(headers):
        names = [name for name, _ in sent]
        for name in _SENT_ONCE:
            if names.count(name) > 1:
                raise Invalid(f"The header {name.decode().title()} was sent more than once.")
        for name in _SAID_ONCE:
            if len({value for each, value in sent if each == name}) > 1:
                raise Invalid(f"The header {name.decode().title()} was sent with two values.")
    if b"host" not in headers and http_version != "1.0":
        raise Invalid("The header Host is missing.")


def require_plain(headers: Mapping[bytes, bytes]) -> None:
    """Refuse a body that is compressed: what it would grow to has no bound.

    Raises:
        UnsupportedMediaType: It is.
    """
    coding = headers.get(b"content-encoding", b"identity").decode("latin-1").strip().lower()
    if coding not in {"identity", ""}:
        named = f" {coding}" if _CODING.fullmatch(coding) else ""
        message = f"Content-Encoding:{named} is not taken here; send the body as it is."
        raise UnsupportedMediaType(message)


def api_path(path: str) -> str | None:
    """Return a path below the API's version segment, beginning with a slash; None elsewhere.

    The slashes of a base URL and of a path that was put behind it are one, and one at the end is
    none. Two in the middle stay: the name between them may have been forgotten.
    """
    if path.startswith("//"):
        path = f"/{path.lstrip('/')}"
    for prefix in PREFIXES:
        if path.startswith(prefix) and path[len(prefix) : len(prefix) + 1] == "/":
            found = path[len(prefix) :]
            if found.startswith("//") or found.endswith("/"):
                return f"/{found.strip('/')}"
            return found
    return None


def below(path: str, roots: Sequence[str]) -> bool:
    """Tell whether a path is one of the roots or lies below one."""
    return any(path == root or path.startswith(root + "/") for root in roots)


def reads_itself(method: str, path: str) -> bool:
    """Tell whether a route of the control plane reads its body itself, as it comes.

    Batches are too long to be held; of interns and secrets nothing is read before the caller is
    judged.
    """
    return (method, path) == ("POST", "/batches") or below(path, WITH_REASON)


def is_intern_chat(path: str) -> bool:
    """Tell whether a path is that of a chat with an intern, or of a run that nobody watches."""
    return _CHAT.fullmatch(path) is not None


def deadline(path: str) -> float | None:
    """Return the seconds that an operation may take; None where that is its own affair.

    One that streams may take them until its stream begins.
    """
    if (chat := _CHAT.fullmatch(path)) is not None:
        return CHAT_DEADLINE_SECONDS if chat[1] is None else INVOKE_DEADLINE_SECONDS
    return DEADLINE_SECONDS if below(path, WITH_REASON) else None


def is_open(method: str, path: str) -> bool:
    """Tell whether an API route needs no key, or judges its caller by another proof."""
    if method == "POST":
        return _SIGNED.fullmatch(path) is not None
    return method in {"GET", "HEAD"} and below(path, OPEN_TO_ALL)


def credential(headers: Mapping[bytes, bytes], path: str) -> str | None:
    """Return the key that a request carries, or None.

    It is a bearer token; `/messages` takes Anthropic's `x-api-key` as well.
    """
    given = headers.get(b"authorization")
    if given is not None and given[: len(_BEARER)].lower() == _BEARER:
        token = given[len(_BEARER) :].strip()
        if token:
            return token.decode("latin-1")
    if below(path, ("/messages",)) and (token := headers.get(b"x-api-key")):
        return token.decode("latin-1")
    return None


def origin_allowed(
    origin: bytes, host: bytes | None, scheme: str, allowed: Collection[str]
) -> bool:
    """Tell whether a browser's page of this origin may call: a listed one, or our own.

    Source: https://fetch.spec.whatwg.org/#origin-header
    """
    text = origin.decode("latin-1").lower()
    own = None if host is None else f"{scheme}://{host.decode('latin-1').lower()}"
    return text == own or text in allowed


def is_host(host: str) -> bool:
    """Tell whether a Host is a name or an address, and perhaps a port."""
    if host.startswith("["):
        try:
            IPv6Address(host[1:].partition("]")[0])
        except ValueError:
            return False
    return _HOST.fullmatch(host) is not None


def is_regional(host: str, patterns: Sequence[str]) -> bool:
    """Tell whether a request came for a regional host name; the port does not matter."""
    name = _without_port(host).lower().rstrip(".")
    return any(fnmatchcase(name, pattern.lower()) for pattern in patterns)


def is_trusted(address: str | None, proxies: Sequence[IPv4Network | IPv6Network]) -> bool:
    """Tell whether a peer is one of our own reverse proxies."""
    if address is None or not proxies:
        return False
    try:
        peer = ip_address(address)
    except ValueError:
        return False
    return any(peer.version == network.version and peer in network for network in proxies)


def client_address(
    peer: str, forwarded_for: bytes | None, proxies: Sequence[IPv4Network | IPv6Network]
) -> str:
    """Return the address of the client: the last hop that is not one of our own proxies."""
    if forwarded_for is None or not is_trusted(peer, proxies):
        return peer
    hops = [_without_hop_port(hop) for hop in forwarded_for.decode("latin-1").split(",")]
    for hop in reversed(hops):
        if not is_trusted(hop, proxies):
            return hop or peer
    return hops[0] or peer


def from_loopback(peer: str | None, headers: Mapping[bytes, bytes]) -> bool:
    """Tell whether a request comes from this machine itself.

    One that was forwarded does not: the proxy may be local, its clients are not.
    """
    if peer is None or b"x-forwarded-for" in headers or b"forwarded" in headers:
        return False
    try:
        return ip_address(peer).is_loopback
    except ValueError:
        return False


def _without_hop_port(hop: str) -> str:
    """Return a hop without the port that some proxies add: every connection has another."""
    text = hop.strip()
    return _without_port(text) if text.startswith("[") or text.count(":") == 1 else text


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
