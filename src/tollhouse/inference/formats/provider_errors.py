"""What a provider's error says, in every shape in which servers give it. Pure.

    {"error": {"message", "code" | "type" | "status"}}   OpenAI, Anthropic, Google
    {"error": "words"}                                   Ollama, TGI
    {"error": "code", "message": "words"}                AI gateways, Spring
    [{"error": {...}}]                                   Google's OpenAI-compatible API
    {"detail": "words"}                                  FastAPI
    {"detail": [{"loc": [...], "msg": "words"}]}         FastAPI's validation, Mistral
    {"object": "error", "message", "code"}               older vLLM, SGLang
    {"message", "__type"}, {"Output": {"__type"}}        AWS
    {"Error": {"Code", "Message"}}
    {"throttlingException": {"message"}}
    {"statusCode", "error": "words", "message"}          Fastify, NestJS
    {"code", "data": {"message"}}                        AI gateways
    {"message": {"message"}}
    {"choices": [{"error": {...}}]}                      AI gateways
    {"base_resp": {"status_code", "status_msg"}}         MiniMax
    {"fault": {"faultstring", "detail"}}                 Apigee
    {"error_code", "error_msg"}                          Baidu
    words, "words", <title>words</title>                 proxies in between

The same reader serves a body, an event of a stream, and the `error` inside of either.
"""

from __future__ import annotations

import html
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from tollhouse.inference.formats.adapter import ErrorEvent, MalformedResponse
from tollhouse.inference.formats.error_codes import status_of_code
from tollhouse.inference.formats.wire import (
    NULL,
    fields_decoder,
    replace_invalid_text,
    try_decode,
)
from tollhouse.inference.sse import EventParser, is_event_stream

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tollhouse.inference.formats.wire import Fields

_NESTED: Final = (
    *("error", "errors", "Error", "fault", "detail", "base_resp"),
    *("Output", "data", "message", "status"),
)
"""Where the error stands, if it is not at the top; the first that says anything counts."""
_EXCEPTION: Final = "exception"
_WORDS: Final = (
    *("message", "msg", "error_message", "error_msg", "errorMessage", "errorMsg", "Message"),
    *("error_description", "description", "title", "status_msg", "faultstring"),
)
_CODES: Final = (
    *("code", "Code", "type", "__type", "status", "statusCode", "reason"),
    *("error_code", "errorCode", "errorcode"),
)
_NO_CODES: Final = frozenset({"", "error", "about:blank"})
"""Say that it is an error, not which."""
BASE_RESP: Final[Mapping[int, str]] = {
    # https://platform.minimax.io/docs/api-reference/errorcode
    1000: "internal_error",
    1001: "timeout",
    1002: "rate_limit_exceeded",
    1004: "invalid_api_key",
    1008: "insufficient_balance",
    1013: "internal_error",
    1024: "internal_error",
    1026: "content_filter",
    1027: "content_filter",
    1033: "internal_error",
    1039: "rate_limit_exceeded",
    1041: "rate_limit_exceeded",
    2013: "bad_request",
    2045: "rate_limit_exceeded",
    2049: "invalid_api_key",
    2056: "insufficient_quota",
}
"""MiniMax's numbers, as the codes that others have for the same; 0 is no error."""
_PHRASES: Final = {each.phrase: each.value for each in HTTPStatus}
_DEEPEST: Final = 4
_LONGEST_TEXT: Final = 2_000
_TITLE: Final = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_TAG: Final = re.compile(r"<[^>]*>")
_MARKUP: Final = re.compile(r"\s*<")
_BROKEN_JSON: Final = re.compile(r"\s*[\[{]")


_OF_REPLIES: Final = frozenset({"choices", "content", "output", "delta", "response"})
_EMPTY: Final = (
    NULL,
    msgspec.Raw(b"[]"),
    msgspec.Raw(b"{}"),
    msgspec.Raw(b'""'),
    msgspec.Raw(b"false"),
)


def error_in_place_of_reply(data: bytes) -> ErrorEvent | None:
    """Return the error that stands where a reply should be, under any status and in any shape.

    None if it may be a reply or a part of one, or says nothing.
    """
    fields = try_decode(fields_decoder, replace_invalid_text(data))
    if fields is None and (data.lstrip().startswith(b"{") or is_event_stream(data)):
        return None
    fields = fields or {}
    if any(fields.get(name, NULL) not in _EMPTY for name in _OF_REPLIES):
        return None
    found = read_error(data)
    says = found.message or fields.get("error", NULL) not in _EMPTY
    return found if says or status_of_code(found.code) is not None else None


def not_of_dialect(data: bytes, problem: str) -> ErrorEvent | MalformedResponse:
    """Return what to raise for an event that is none of its stream: an error in its place, too."""
    return error_in_place_of_reply(data) or MalformedResponse(problem)


class _InReply(msgspec.Struct):
    error: msgspec.Raw = NULL


class _Refusal(msgspec.Struct):
    status_code: int = 0


_errors: Final = msgspec.json.Decoder(list[_InReply])
_refusal: Final = msgspec.json.Decoder(_Refusal)


def raise_error_within(fields: Fields) -> None:
    """Raise the error that a chat reply or a chunk holds beside or within its choices."""
    if fields.get("error", NULL) != NULL:
        raise read_error(fields["error"])
    refused = try_decode(_refusal, fields["base_resp"]) if "base_resp" in fields else None
    if refused is not None and refused.status_code:
        raise read_error(fields["base_resp"])
    choices = fields.get("choices", NULL)
    if b'"error"' in memoryview(choices).tobytes():
        for each in try_decode(_errors, choices) or ():
            if each.error != NULL:
                raise read_error(each.error)


class _FieldError(msgspec.Struct):
    loc: list[str | int]
    msg: str


def read_error(data: msgspec.Raw | bytes) -> ErrorEvent:
    """Return an error's code and words, as far as it has any; never raises."""
    given = replace_invalid_text(bytes(data))
    if is_event_stream(given) and (events := (parser := EventParser()).feed(given) + parser.end()):
        given = events[0]
    try:
        value = msgspec.json.decode(given)
    except (msgspec.DecodeError, RecursionError):
        return ErrorEvent(None, _plain(given.decode()), given)
    return ErrorEvent(*_said(value), given)


def _said(value: object, depth: int = 0) -> tuple[str | int | None, str | None]:
    if isinstance(value, str):
        return None, value.strip() or None
    if isinstance(value, list) and depth < _DEEPEST:
        return _said_by_list(cast("list[object]", value), depth)
    if isinstance(value, dict) and depth < _DEEPEST:
        return _said_by_object(cast("dict[str, Any]", value), depth)
    return None, None


def _said_by_object(value: Mapping[str, Any], depth: int) -> tuple[str | int | None, str | None]:
    code = next((found for name in _CODES if (found := _code(value.get(name)))), None)
    if isinstance(number := value.get("status_code"), int):
        code = code or BASE_RESP.get(number, number)
    words = next((value[name] for name in _WORDS if _is_text(value.get(name))), None)
    given = value.get("error")
    if isinstance(given, str) and words and (" " not in given or given in _PHRASES):
        return _PHRASES.get(given, given) or code, words  # a code beside its words
    for name in _NESTED:
        inner_code, inner = _said(value.get(name), depth + 1)
        if inner is not None or inner_code is not None:
            return code if inner_code is None else inner_code, inner or words
    if len(value) == 1 and (name := next(iter(value))).lower().endswith(_EXCEPTION):
        return name, _said(value[name], depth + 1)[1]
    if words is None and isinstance(code, str) and " " in code:
        return None, code
    return code, words


def _said_by_list(errors: Sequence[object], depth: int) -> tuple[str | int | None, str | None]:
    """Return what the first of several errors says; those about fields name them, all together."""
    about_fields = list(map(_about_field, errors))
    if about_fields and None not in about_fields:
        return None, "; ".join(filter(None, about_fields))
    return _said(errors[0], depth + 1) if errors else (None, None)


def _about_field(error: object) -> str | None:
    """Return `body.messages.0: field required`; None for an error that names no field."""
    try:
        found = msgspec.convert(error, _FieldError)
    except msgspec.ValidationError:
        return None
    return f"{'.'.join(map(str, found.loc))}: {found.msg}"


def _code(value: object) -> str | int | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return None if value in _NO_CODES else value


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _plain(text: str) -> str | None:
    """Return the words of an error that is no JSON: of a page its title, if it has one."""
    if _BROKEN_JSON.match(text):
        return None
    if _MARKUP.match(text):
        title = _TITLE.search(text[:_LONGEST_TEXT])
        text = html.unescape(title[1] if title else _TAG.sub(" ", text[:_LONGEST_TEXT]))
    return " ".join(text[:_LONGEST_TEXT].split()) or None
