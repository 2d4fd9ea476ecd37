"""How an error leaves over HTTP: status, headers and body, the same for every route.

    {"error": {"code": 404, "message": "...",
               "metadata": {"reason": "not_found", "retryable": false}}}

Operations on interns and secrets say a reason in the metadata, unless the error has its own. Chats
with interns have other words for some of it, and say nothing of what lies outside of the programme.
A request that does not fit its route is told which field breaks which rule, never what was sent.

Source of the reasons: the public gateway's errors of the intern life cycle and of the chat with
interns; 401 and 403 have none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from tollhouse.api.asgi import JSON
from tollhouse.api.request_rules import WITH_REASON, below, is_intern_chat
from tollhouse.interns.chat.errors import RETRY_SECONDS, retry_seconds
from tollhouse.kernel.errors import (
    Invalid,
    MethodNotAllowed,
    NotOffered,
    RateLimited,
    Unauthenticated,
    error_body,
    status_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tollhouse.kernel.errors import Kind, TollhouseError


_encode = msgspec.json.Encoder().encode


def error_response(
    error: TollhouseError, shown: Mapping[str, object] | None = None
) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Return the status, headers without a content length, and body that an error becomes.

    The body is `shown` where the request's format has an envelope of its own.

    Source: RFC 9110, sections 10.2.1 (Allow), 10.2.3 (Retry-After), 11.6.1 (WWW-Authenticate).
    """
    headers: list[tuple[bytes, bytes]] = [JSON]
    if error.retry_after is not None:
        headers.append((b"retry-after", str(error.retry_after).encode()))
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", ", ".join(error.allow).encode()))
    if isinstance(error, RateLimited):
        limit = error.window.headers().items()
        headers.extend((name.lower().encode(), value.encode()) for name, value in limit)
    if isinstance(error, Unauthenticated):
        headers.append((b"www-authenticate", b"Bearer"))
    return status_of(error), headers, _encode(error_body(error) if shown is None else shown)


REASONS: Final[Mapping[Kind, tuple[str, bool]]] = {
    "invalid": ("invalid_body", False),
    "unprocessable": ("invalid_body", False),
    "method_not_allowed": ("method_not_allowed", False),
    "not_found": ("not_found", False),
    "gone": ("not_found", False),
    "timed_out": ("timeout", True),
    "conflict": ("conflict", False),
    "payload_too_large": ("payload_too_large", False),
    "unsupported_media_type": ("unsupported_media_type", False),
    "rate_limited": ("rate_limited", True),
    "bug": ("internal_error", True),
    "unavailable": ("unavailable", True),
    "upstream": ("upstream_unavailable", True),
}
"""Kind of an error -> its reason, and whether another try makes sense."""

CHAT_REASONS: Final[Mapping[Kind, tuple[str, bool]]] = {
    **REASONS,
    "invalid": ("bad_request", False),
    "unprocessable": ("bad_request", False),
    "conflict": ("intern_not_ready", True),
    "unavailable": ("busy", True),
    "upstream": ("intern_unreachable", True),
}
"""The same for chats with interns."""
_CLOSED: Final = ("reason", "retryable")
"""All that the error of a chat may say beside its message."""


def with_reason(error: TollhouseError, path: str) -> TollhouseError:
    """Return an error that says its reason, where the route is one whose errors do."""
    if is_intern_chat(path):
        return _of_chat(error)
    if below(path, WITH_REASON):
        error.metadata = _reason(REASONS, error) | error.metadata
    return error


def retry_hint(path: str, wait: float) -> int | None:
    """Return what `Retry-After` says of a wait in seconds; clients of interns' chats want one."""
    return retry_seconds(wait) if is_intern_chat(path) else None


def _of_chat(error: TollhouseError) -> TollhouseError:
    if isinstance(error, NotOffered):
        return error
    about = _reason(CHAT_REASONS, error) | error.metadata
    error.metadata = {name: about[name] for name in _CLOSED if name in about}
    if error.kind == "unavailable" and error.retry_after is None:
        error.retry_after = RETRY_SECONDS
    return error


def _reason(reasons: Mapping[Kind, tuple[str, bool]], error: TollhouseError) -> dict[str, Any]:
    known = reasons.get(error.kind)
    return {} if known is None else dict(zip(_CLOSED, known, strict=True))


_MOST_SHOWN = 5
_LONGEST_PATH = 100
_TEXTS = {"missing": "is required", "extra_forbidden": "is not a known field"}
_NOT_AN_OBJECT = frozenset({"model_attributes_type", "model_type", "dict_type"})


def invalid_request(errors: Sequence[Mapping[str, Any]], content_type: str | None) -> Invalid:
    """Return the refusal of a request in which the framework's validation found errors."""
    first = errors[0]
    place = tuple(first["loc"])
    if first["type"] == "json_invalid":
        return Invalid(f"The body is not JSON: {first['ctx']['error']} at position {place[1]}.")
    if place == ("body",):
        return Invalid(_whole_body(first["type"], content_type))
    shown = [f"{_field_path(each['loc'])}: {_problem(each)}" for each in errors[:_MOST_SHOWN]]
    if len(errors) > _MOST_SHOWN:
        shown.append(f"and {len(errors) - _MOST_SHOWN} more")
    return Invalid("; ".join(shown) + ".")


def _whole_body(kind: str, content_type: str | None) -> str:
    if kind == "missing":
        return "The request needs a body: a JSON object."
    if kind in _NOT_AN_OBJECT and content_type and "json" not in content_type.lower():
        return "Send the body as JSON, with Content-Type: application/json."
    return "The body must be a JSON object."


def _field_path(place: Sequence[str | int]) -> str:
    path = ".".join(str(part) for part in place[1:])
    return path if len(path) <= _LONGEST_PATH else path[:_LONGEST_PATH] + "..."


def _problem(error: Mapping[str, Any]) -> str:
    return _TEXTS.get(error["type"]) or str(error["msg"]).rstrip(".")
