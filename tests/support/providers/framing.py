r"""Renders HTTP responses of test servers: counted, chunked, and either one cut short.

    Framing("x-request-id: req_1\r\n").stream([b"data: 1\\n\\n"])
        head | chunk | last chunk

Source: RFC 9112, sections 6.2, 6.3 and 7.1.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from tests.support.providers.byte_script import End, Pause, Script, Step

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream; charset=utf-8"
RST_AFTER_SECONDS: Final = 0.05
"""A reset overtakes what was written just before it; the pause lets the client read that."""


@dataclass(frozen=True, slots=True)
class Framing:
    """Renders responses with the header lines of one provider, each with its CRLF."""

    headers: str = ""

    def whole(self, status: int, body: bytes, content_type: str = JSON, extra: str = "") -> bytes:
        """Return a counted response; `extra` holds further header lines, each with its CRLF."""
        counted = f"Content-Length: {len(body)}\r\n{extra}"
        return self._head(status, content_type, counted) + body

    def chunked_head(self, content_type: str) -> bytes:
        return self._head(200, content_type, "Transfer-Encoding: chunked\r\n")

    def stream(self, events: Iterable[bytes], *, pause_seconds: float | None = None) -> Script:
        """Return a chunked event stream that ends cleanly, one chunk for each event."""
        steps: list[Step] = [self.chunked_head(EVENTS)]
        for event in events:
            steps.append(chunk(event))
            if pause_seconds is not None:
                steps.append(Pause(pause_seconds))
        return (*steps, b"0\r\n\r\n")

    def cut(self, parts: list[bytes], kind: str, size: int, how: str) -> Script:
        """Return a response that ends after `size` bytes of its body.

        Args:
            parts: The events of a stream, or the one part of a complete body.
            kind: The content type.
            size: The bytes of the body that are sent.
            how: `eof` ends a chunked body, `short` a counted one, `rst` resets the connection.
        """
        counted = how == "short" or (how == "rst" and kind == JSON)
        cut = self._cut_counted if counted else self._cut_chunked
        steps = cut(parts, kind, size)
        return (*steps, Pause(RST_AFTER_SECONDS), End.RST) if how == "rst" else (*steps, End.EOF)

    def _cut_counted(self, parts: list[bytes], kind: str, left: int) -> Script:
        body = b"".join(parts)
        head = self.whole(200, body, kind).removesuffix(body)
        return (head + body[:left],)

    def _cut_chunked(self, parts: list[bytes], kind: str, left: int) -> Script:
        """Return chunks up to the cut, which may be within a chunk."""
        steps: list[Step] = [self.chunked_head(kind)]
        for part in parts:
            if left <= 0:
                break
            frame = chunk(part)
            steps.append(frame if left >= len(part) else frame[: frame.index(b"\n") + 1 + left])
            left -= len(part)
        return tuple(steps)

    def _head(self, status: int, content_type: str, extra: str) -> bytes:
        return (
            f"HTTP/1.1 {status} {_phrase(status)}\r\nContent-Type: {content_type}\r\n"
            f"{self.headers}{extra}\r\n"
        ).encode()


def chunk(data: bytes) -> bytes:
    """Return one chunk.

    Source: RFC 9112, section 7.1.
    """
    return b"%x\r\n%b\r\n" % (len(data), data)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
