r"""The responses of one connection, from bytes. Pure: it does not matter where the bytes were cut.

    parser.expect(response, "POST")
    parser.feed(b"HTTP/1.1 200 OK\r\n...")    fills `response`: begin, feed, feed, ... end
    parser.complete                            whether it has ended
    parser.reusable                            ... and the connection may carry another request

The grammar is llhttp's, in its strict mode. What is added here: bounds, and the framing that a
gateway does not guess at.

Source: RFC 9112, sections 4 (status line), 6 (message body), 7 (chunks) and 9.3 (persistence).
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol

from httptools import (
    HttpParserCallbackError,
    HttpParserError,
    HttpParserUpgrade,
    HttpResponseParser,
)

from tollhouse.inference.upstream.errors import ProtocolViolation, UpstreamError
from tollhouse.inference.upstream.head import MAX_FIELDS, MAX_HEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

_BODYLESS: Final = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


class Sink(Protocol):
    """Takes one response as it comes."""

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Take the head."""
        ...

    def feed(self, piece: bytes) -> None:
        """Take a piece of the body."""
        ...


class ResponseParser:
    """Parses one response after another."""

    __slots__ = (
        "_began",
        "_fields",
        "_headers",
        "_http",
        "_is_head",
        "_keep_alive",
        "_leftover",
        "_open_ended",
        "_overhead",
        "_sink",
        "_size",
        "complete",
    )

    def __init__(self) -> None:
        """Expect nothing."""
        self._http = HttpResponseParser(self)
        self._sink: Sink | None = None
        self._is_head = False
        self._reset()

    def _reset(self) -> None:
        self.complete = False
        self._headers: dict[str, str] = {}
        self._began = False
        self._open_ended = False
        self._leftover = False
        self._keep_alive = False
        self._fields = 0
        self._size = 0
        self._overhead = 0

    def expect(self, sink: Sink, method: str) -> None:
        """Give the next response to the sink."""
        if self._is_head:  # the parser knows nothing of HEAD, and still waits for a body
            self._http = HttpResponseParser(self)
        self._is_head = method == "HEAD"
        self._sink = sink
        self._reset()

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the connection.

        Raises:
            ProtocolViolation: They are not HTTP, or break its rules.
        """
        self._overhead += len(data)
        try:
            self._http.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if self.complete:
                self._leftover = True
            else:
                raise _violation(error) from None
        if self.complete:
            self._sink = None
        elif self._overhead > MAX_HEAD_BYTES:
            raise ProtocolViolation("the response's head or trailers do not end", sent=True)

    def end_of_file(self) -> bool:
        """Tell whether the end of the connection is the end of the response."""
        if self._began and self._open_ended:
            self.complete = True
        return self.complete

    @property
    def reusable(self) -> bool:
        """Whether the response ended with nothing behind it on a connection that stays open."""
        return self._keep_alive and not self._leftover and not self._open_ended

    def drop(self) -> None:
        """Let go of the parser, which holds on to this object."""
        del self._http
        self._sink = None

    # What httptools calls

    def on_message_begin(self) -> None:
        """Note that bytes came without a request."""
        if self.complete:
            self._leftover = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a field of the head; one of the trailers is dropped."""
        self._fields += 1
        self._size += len(name) + len(value)
        if self._fields > MAX_FIELDS or self._size > MAX_HEAD_BYTES:
            raise ProtocolViolation("the response's head or trailers are too large", sent=True)
        if not self._began:
            self._headers[name.decode("latin-1").lower()] = value.strip().decode("latin-1")

    def on_headers_complete(self) -> None:
        """Begin the response, unless it is an interim one."""
        status = self._http.get_status_code()
        if self.complete or (status < HTTPStatus.OK and status != HTTPStatus.SWITCHING_PROTOCOLS):
            return
        self._check_framing(status)
        self._began = True
        if self._is_head:
            self._complete()
        if self._sink is not None:
            self._sink.begin(status, self._headers)

    def on_body(self, piece: bytes) -> None:
        """Pass a piece of the body on."""
        self._overhead = 0
        if self.complete:
            self._leftover = True
        elif self._sink is not None:
            self._sink.feed(piece)

    def on_message_complete(self) -> None:
        """End the response; after an interim one, expect the next."""
        if self._began:
            self._complete()
        else:
            self._reset()

    def _complete(self) -> None:
        self.complete = True
        self._keep_alive = self._http.should_keep_alive()  # forgotten once the callback returns

    def _check_framing(self, status: int) -> None:
        if status == HTTPStatus.SWITCHING_PROTOCOLS:
            raise ProtocolViolation("an upgrade that nobody asked for", sent=True)
        version = self._http.get_http_version()
        if version not in {"1.1", "1.0"}:
            raise ProtocolViolation("the response is neither HTTP/1.1 nor HTTP/1.0", sent=True)
        coding = self._headers.get("transfer-encoding")
        if coding is not None and (coding.lower() != "chunked" or version != "1.1"):
            raise ProtocolViolation("a transfer coding that nobody asked for", sent=True)
        counted = coding is not None or "content-length" in self._headers
        self._open_ended = not counted and not self._is_head and status not in _BODYLESS


def _violation(error: Exception) -> UpstreamError:
    cause = error.__context__
    if isinstance(error, HttpParserCallbackError) and isinstance(cause, UpstreamError):
        return cause
    if isinstance(error, HttpParserUpgrade):
        return ProtocolViolation("an upgrade that nobody asked for", sent=True)
    return ProtocolViolation(f"the response is not HTTP: {error}", sent=True)
