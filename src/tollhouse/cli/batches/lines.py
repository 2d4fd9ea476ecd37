"""One line of a file of requests. Pure.

{"custom_id": "a", "body": {...}}
{"custom_id": "a", "method": "POST", "url": "/v1/responses", "body": {...}}     OpenAI's
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from tollhouse.cli.batches.endpoints import known_endpoint, names
from tollhouse.kernel.validation_errors import parse_validation_error

_OBJECT: Final = b"{"
_MALFORMED: Final = "JSON is malformed: "


class BadLine(Exception):
    """The line is no request; the text says why."""


class Line(NamedTuple):
    """One request of a batch."""

    custom_id: str
    body: msgspec.Raw
    endpoint: str | None
    """Its `url`, where it has one."""
    model: str | None
    """Its `body.model`, where it has one."""

    @property
    def item(self) -> bytes:
        """What is sent for it."""
        return _encode({"custom_id": self.custom_id, "body": self.body})


class _Line(msgspec.Struct):
    custom_id: str | None = None
    body: msgspec.Raw = msgspec.Raw()
    method: str | None = None
    url: str | None = None


class _Body(msgspec.Struct):
    model: Any = None


_encode = msgspec.json.Encoder().encode
_read_line = msgspec.json.Decoder(_Line).decode
_read_body = msgspec.json.Decoder(_Body).decode


def read_line(text: bytes) -> Line:
    """Return what a line says.

    Raises:
        BadLine: It is no request.
    """
    found = _decoded(text)
    if not found.custom_id:
        raise BadLine("custom_id is missing" if found.custom_id is None else "custom_id is empty")
    begin = bytes(found.body)[:1]
    if not begin:
        raise BadLine("body is missing")
    if begin != _OBJECT:
        raise BadLine("body has to be an object, the request itself")
    if found.method not in {None, "POST"}:
        raise BadLine(f"method is {found.method!r}: every request of a batch is a POST")
    return Line(found.custom_id, found.body, _endpoint(found.url), _model(found.body))


def _decoded(text: bytes) -> _Line:
    try:
        text.decode()
        return _read_line(text)
    except UnicodeDecodeError as error:
        raise BadLine(f"not UTF-8 at its byte {error.start}") from None
    except msgspec.ValidationError as error:
        path, _ = parse_validation_error(error)
        what = f"{path[1:]} has to be a text" if path else "not an object with custom_id and body"
        raise BadLine(what) from None
    except msgspec.DecodeError as error:
        raise BadLine(f"not JSON: {str(error).removeprefix(_MALFORMED)}") from None
    except RecursionError:
        raise BadLine("nested too deeply") from None


def _endpoint(url: str | None) -> str | None:
    if url is None:
        return None
    found = known_endpoint(url)
    if found is None:
        raise BadLine(f"url is {url!r}, none of {names()}")
    return found


def _model(body: msgspec.Raw) -> str | None:
    model = _read_body(body).model
    if model is None or isinstance(model, str):
        return model
    raise BadLine("body.model has to be a text")
