"""The way through a proxy: a tunnel for https, requests with the whole URL for http."""

from __future__ import annotations

import asyncio
import base64
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from tollhouse.outbound.http.parser import MAX_HEAD_BYTES
from tollhouse.outbound.http.port import ConnectFailed

if TYPE_CHECKING:
    import socket

    from tollhouse.outbound.http.parser import Origin, ParsedUrl

_HTTP_PORT: Final = 80
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: [^\r\n]*)?\r\n")


@dataclass(frozen=True, slots=True)
class Proxy:
    """Where a proxy is, and what it wants to see."""

    host: str
    port: int
    fields: tuple[tuple[str, str], ...] = field(repr=False)
    """The header fields of requests to it; they may hold its password."""

    def whole_url(self, target: ParsedUrl) -> ParsedUrl:
        """Return the target of a request for an http origin as the proxy wants it.

        Source: RFC 9112, section 3.2.2 (absolute-form).
        """
        return target._replace(path=f"http://{target.authority}{target.path}")


def read_proxy(url: str) -> Proxy:
    """Take apart `http://[user:password@]host[:port]`; user and password may be percent-encoded.

    Raises:
        ValueError: It is not of this form.

    Source: RFC 7617 (Basic).
    """
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname or parts.path not in {"", "/"}:
        raise ValueError("a proxy's address has to look like http://user:password@host:port")
    fields: tuple[tuple[str, str], ...] = ()
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        token = base64.b64encode(user.encode()).decode()
        fields = (("Proxy-Authorization", f"Basic {token}"),)
    return Proxy(parts.hostname, parts.port or _HTTP_PORT, fields)


async def open_tunnel(sock: socket.socket, proxy: Proxy, origin: Origin) -> None:
    """Ask a proxy to connect its connection to an origin; it carries the origin's bytes then.

    Raises:
        ConnectFailed: The proxy refused, broke off or did not speak HTTP.
        OSError: The connection was lost.

    Source: RFC 9110, section 9.3.6 (CONNECT).
    """
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    authority = f"{host}:{origin.port}"
    fields = "".join(f"{name}: {value}\r\n" for name, value in proxy.fields)
    request = f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{fields}\r\n"
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, request.encode("ascii"))
    reply = b""
    while b"\r\n\r\n" not in reply:
        received = await loop.sock_recv(sock, MAX_HEAD_BYTES)
        reply += received
        if not received or len(reply) > MAX_HEAD_BYTES:
            raise _failed("broke off before it answered" if not received else "answered too much")
    status = _STATUS_LINE.match(reply)
    if status is None:
        raise _failed("did not answer in HTTP/1.1")
    if not status[1].startswith(b"2"):
        raise _failed(f"refused the connection with {status[1].decode()}")
    if not reply.endswith(b"\r\n\r\n") or reply.count(b"\r\n\r\n") > 1:
        raise _failed("spoke for the server before that was asked")


def _failed(what: str) -> ConnectFailed:
    return ConnectFailed(f"the proxy {what}", sent=False)
