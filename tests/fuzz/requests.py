"""Requests that the proxy parses and writes again are read in the same way by a second parser.

What is accepted has to be, for a second reader that shares no code with the first one, exactly as
many requests, with the same methods, paths, fields and bodies; in whatever pieces it came. Nothing
but a rejection or the end of the connection may be raised.
"""

from collections.abc import Coroutine, Sequence
from functools import cache
from typing import Any, NamedTuple

import h11
import httptools

from tollhouse.vault.egress.exchange import forwarded_head, request_in
from tollhouse.vault.egress.rejections import MALFORMED, Rejected
from tollhouse.vault.egress.request_head import (
    HTTP_PORT,
    HTTPS_PORT,
    Field,
    HeadReader,
    Target,
    absolute_target,
    check_host,
    check_method,
    check_origin_form,
    connect_target,
    values_of,
)
from tollhouse.vault.egress.routes import RequestHead
from tollhouse.vault.egress.streams import PeerDisconnected

HERE = Target("a.com", HTTPS_PORT)
NAMED = b"api.example.com"
PIECE = 5
NOT_PASSED_ON = {
    *(b"keep-alive", b"proxy-authorization", b"proxy-connection", b"te", b"trailer", b"expect")
}


class Message(NamedTuple):
    """A request that is passed on to the host."""

    method: bytes
    path: bytes
    headers: list[Field]
    body: bytes


class Client:
    """A client's connection that delivers given bytes in pieces."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = iter(pieces)

    async def receive(self) -> bytes:
        return next(self._pieces, b"")


class SecondReader:
    """Parses what is passed on to the host."""

    def __init__(self) -> None:
        self.path = b""
        self.headers: list[Field] = []
        self.body = b""
        self.ends = 0

    def on_url(self, url: bytes) -> None:
        self.path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.ends += 1


def check(data: bytes) -> None:
    """Fail where the proxy and the host could disagree about what some bytes ask for."""
    pieces = [data[at : at + PIECE] for at in range(0, len(data), PIECE)]
    for read in (inside, outside):
        whole = read([data] if data else [])
        assert read(pieces) == whole


def inside(pieces: Sequence[bytes]) -> tuple[list[Message], str]:
    """Read requests inside a tunnel; return those that are passed on, and how it ended."""
    client, heads = Client(pieces), HeadReader()
    messages: list[Message] = []
    try:
        while (found := next_request(client, heads)) is not None:
            incoming, request = found
            check_method(request.method)
            check_origin_form(request.target)
            check_host(values_of(request.headers, b"host"), HERE, HTTPS_PORT)
            messages.append(
                passed(client, incoming, forwarded_head(request, request.target, NAMED))
            )
            heads = HeadReader(incoming.trailing_data[0])
    except (Rejected, PeerDisconnected) as ended:
        return messages, repr(ended)
    return messages, "ended"


def outside(pieces: Sequence[bytes]) -> tuple[list[Message], str]:
    """Read the first request of a connection."""
    client, heads = Client(pieces), HeadReader()
    try:
        found = next_request(client, heads)
        if found is None:
            return [], "ended"
        incoming, request = found
        hosts = values_of(request.headers, b"host")
        if request.method == b"CONNECT":
            target = connect_target(request.target)
            if hosts:
                check_host(hosts, target, target.port)
            return [], repr(target)
        check_method(request.method)
        target, path = absolute_target(request.target)
        check_host(hosts, target, HTTP_PORT)
        return [passed(client, incoming, forwarded_head(request, path, NAMED))], repr(target)
    except (Rejected, PeerDisconnected) as ended:
        return [], repr(ended)


def passed(client: Client, incoming: h11.Connection, asked: RequestHead) -> Message:
    """Return what the host reads of a request that is passed on to it."""
    outer = h11.Connection(h11.CLIENT)
    head = h11.Request(method=asked.method, target=asked.path, headers=asked.headers)
    written, body = outer.send(head) or b"", b""
    while not isinstance(event := next_of(incoming), h11.EndOfMessage):
        if isinstance(event, h11.Data):
            body += event.data
            written += outer.send(event) or b""
            continue
        data = finished(client.receive())
        if not data:
            raise PeerDisconnected
        incoming.receive_data(data)
    written += outer.send(h11.EndOfMessage()) or b""
    headers = sorted(asked.headers, key=lambda field: field[0] != b"host")  # written first
    message = Message(asked.method, asked.path, headers, body)
    assert read_again(written, asked.method) == message
    check_fields(message)
    return message


def next_of(incoming: h11.Connection) -> Any:
    try:
        return incoming.next_event()
    except h11.RemoteProtocolError:
        raise Rejected(MALFORMED) from None


def read_again(written: bytes, method: bytes) -> Message:
    """Return what a second reader reads; it knows only methods that are registered."""
    assert written.startswith(method + b" ")
    if not is_known(method):
        written = b"POST" + written[len(method) :]
    reader = SecondReader()
    parser = httptools.HttpRequestParser(reader)
    taken = len(written)
    try:
        parser.feed_data(written)
    except httptools.HttpParserUpgrade as upgrade:
        (taken,) = upgrade.args
    assert taken == len(written)
    assert reader.ends == 1
    assert parser.get_http_version() == "1.1"
    found = parser.get_method() if is_known(method) else method
    return Message(found, reader.path, reader.headers, reader.body)


@cache
def is_known(method: bytes) -> bool:
    try:
        httptools.HttpRequestParser(SecondReader()).feed_data(method + b" / HTTP/1.1\r\n\r\n")
    except httptools.HttpParserError:
        return False
    return True


def check_fields(message: Message) -> None:
    names = [name for name, _ in message.headers]
    assert names.count(b"host") == 1
    assert names.count(b"content-length") + names.count(b"transfer-encoding") <= 1
    assert not NOT_PASSED_ON & set(names)
    assert message.path.startswith(b"/")
    if b"upgrade" in names or b"connection" in names:
        assert message.headers[-2:] == [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
        assert (names.count(b"upgrade"), names.count(b"connection")) == (1, 1)
        assert not message.body


def next_request(client: Client, heads: HeadReader) -> tuple[h11.Connection, h11.Request] | None:
    """Read as `next_head` does, without its clock."""
    while (head := heads.take()) is None:
        data = finished(client.receive())
        if not data:
            if heads.begun:
                raise PeerDisconnected
            return None
        heads.feed(data)
    return request_in(head, heads)


def finished(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits")
