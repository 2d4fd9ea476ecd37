"""Where a request wants to go, read strictly. Pure.

    CONNECT api.example.com:443         authority-form, the only one of CONNECT
    GET http://api.example.com/path     absolute-form, the only one outside a tunnel
    GET /path                           origin-form, the only one inside

Source: RFC 9112, section 3.2 (request targets); RFC 9110, section 7.2 (Host).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tollhouse.kernel.hosts import HostNameProblem, InvalidHostName, normal_host
from tollhouse.vault.egress.refusals import (
    HOST_DISAGREES,
    MALFORMED,
    NOT_A_NAME,
    NOT_ORIGIN_FORM,
    ONE_HOST,
    Refused,
)

HTTP_PORT: Final = 80
HTTPS_PORT: Final = 443
_MOST: Final = 65_535
_PORT: Final = re.compile(r"[0-9]{1,5}")
_ABSOLUTE: Final = re.compile(rb"(?i:http)://([^/?#@]*)([/?].*)?")
_LITERAL: Final = re.compile(r"\[.*\](:[0-9]*)?")


class Target(NamedTuple):
    """A host and a port of it."""

    host: str
    """As `kernel.hosts` writes it."""
    port: int


def connect_target(target: bytes) -> Target:
    """Return where a CONNECT leads.

    Raises:
        Refused: It is not `name:port`.
    """
    return _target(target, None)


def absolute_target(target: bytes) -> tuple[Target, bytes]:
    """Return where a request outside a tunnel leads, and its path with the query.

    Raises:
        Refused: It is no `http:` URL with a host name.
    """
    match = _ABSOLUTE.fullmatch(target)
    if match is None or b"#" in target:
        raise Refused(MALFORMED)
    path = match[2] or b"/"
    return _target(match[1], HTTP_PORT), path if path.startswith(b"/") else b"/" + path


def check_origin_form(target: bytes) -> None:
    """Make sure that a target is a path.

    Raises:
        Refused: It is not.
    """
    if not target.startswith(b"/") or b"#" in target:
        raise Refused(NOT_ORIGIN_FORM)


def check_host(hosts: list[bytes], target: Target, default_port: int) -> None:
    """Make sure that a request names the host that it goes to, once.

    Args:
        hosts: The values of its Host headers.
        target: Where the connection leads.
        default_port: What a Host header without a port means.

    Raises:
        Refused: It does not.
    """
    if len(hosts) != 1:
        raise Refused(ONE_HOST)
    if _target(hosts[0], default_port) != target:
        raise Refused(HOST_DISAGREES)


def host_header(target: Target, default_port: int) -> bytes:
    """Return how a request names the host that it goes to."""
    port = "" if target.port == default_port else f":{target.port}"
    return f"{target.host}{port}".encode()


def _target(authority: bytes, default_port: int | None) -> Target:
    try:
        text = authority.decode("ascii")
    except UnicodeDecodeError:
        raise Refused(MALFORMED) from None
    if _LITERAL.fullmatch(text):
        raise Refused(NOT_A_NAME)
    name, colon, digits = text.partition(":")
    return Target(_host(name), _port(digits) if colon else _default(default_port))


def _host(name: str) -> str:
    try:
        return normal_host(name)
    except InvalidHostName as error:
        raise Refused(NOT_A_NAME if error.why is HostNameProblem.ADDRESS else MALFORMED) from None


def _port(digits: str) -> int:
    if not _PORT.fullmatch(digits) or not 1 <= int(digits) <= _MOST:
        raise Refused(MALFORMED)
    return int(digits)


def _default(port: int | None) -> int:
    if port is None:
        raise Refused(MALFORMED)
    return port
