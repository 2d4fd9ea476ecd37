"""What the provider says in random conversations: well formed, odd, broken, or an error.

    answer(draw, request) -> the bytes of a response, and how its connection ends

A reply is drawn from a source of randomness and depends on its request in what it has to: the
dialect, whether it is streamed, and the tools that may be called.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any, Final
from urllib.parse import urlsplit

from tests.oracle import http_material as material
from tests.support.providers import (
    chat_renderer,
    messages_renderer,
    openai_errors,
    responses_renderer,
)
from tests.support.providers.byte_script import End, Script
from tests.support.providers.framing import EVENTS, JSON
from tests.support.providers.openai_embeddings import embeddings
from tests.support.providers.stub_reply import CACHED, Call, Said, Used
from tests.support.providers.stub_text import JsonObject, pieces
from tests.support.providers.upstream_server import ReceivedRequest

_RENDERERS: Final[dict[str, Any]] = {
    "chat": chat_renderer,
    "responses": responses_renderer,
    "messages": messages_renderer,
}
_DIALECTS: Final = {
    "chat/completions": "chat",
    "responses": "responses",
    "messages": "messages",
    "messages/count_tokens": "count",
    "completions": "completions",
    "embeddings": "embeddings",
}
_STATUSES: Final = (400, 400, 401, 402, 403, 404, 408, 413, 422, 429, 429, 500, 500, 502, 503, 529)
_ODD_STATUSES: Final = (201, 204, 302, 418, 599)
_HINTS: Final = (
    *("", "", "Retry-After: 7\r\n", "Retry-After: 0.5\r\n", "retry-after-ms: 2500\r\n"),
    *("Retry-After: Wed, 21 Oct 2015 07:28:00 GMT\r\n", "Retry-After: soon\r\n"),
)
_WORDS: Final = (
    *("Bad", "", "Busy, try later", "Rate limit reached for requests."),
    *("prompt is too long: 9 tokens > 8 maximum", "This model's maximum context length is 8."),
    "Zürich \u2028 <b>no</b>",
)
_CODES: Final = (
    None,
    "context_length_exceeded",
    "invalid_image",
    "insufficient_quota",
    "slow_down",
)
_PAGE: Final = b"<!doctype html><title>502 Bad Gateway</title><h1>nginx</h1>"
_ENDS: Final = ("stop", "length", "tool_calls", "content_filter", "MAX_TOKENS", "unheard_of", None)
_END_NAMES: Final = ("finish_reason", "stop_reason", "status")
_LONG: Final = 10_000
"""Characters of a long text; each of its words is an event."""
_ARGUMENTS: Final = ('{"city":"Paris"}', "{}", '{"a": [1, {"b": "ü"}], "c": 1.50}')
_BAD_ARGUMENTS: Final = ("", "null", '{"city":', "[1]", '"{}"', "not JSON")


def dialect_of(request: ReceivedRequest) -> str:
    """Return in which dialect a provider is asked; the path where it is none that is known."""
    path = urlsplit(request.path).path.partition("/v1/")[2]
    return _DIALECTS.get(path, path)


def plain(request: ReceivedRequest) -> Script:
    """Return a short reply as it should be."""
    dialect, asked = dialect_of(request), _asked(request)
    if dialect == "completions":
        body = json.dumps(_completion(asked, "It is fine.")).encode()
    else:
        body = _RENDERERS[dialect].whole(Said(asked, Used(9, 3), text="It is fine."))
    return (_framing(dialect).whole(200, body),)


def answer(draw: Random, request: ReceivedRequest) -> Script:
    """Return the response to a request."""
    dialect, asked = dialect_of(request), _asked(request)
    if draw.random() < 0.12 or dialect not in _DIALECTS.values():
        return _refusal(draw, dialect)
    if dialect in {"embeddings", "count"}:
        return _without_output(draw, dialect, asked)
    streams = asked.get("stream") is True
    if draw.random() < 0.02:
        streams = not streams
    parts = _events(draw, dialect, asked) if streams else [_reply(draw, dialect, asked)]
    if draw.random() < 0.15:
        return _broken(draw, dialect, asked, parts, streams=streams)
    framing = _framing(dialect)
    if not streams:
        return (framing.whole(200, parts[0]),)
    odd = draw.random() < 0.2
    return framing.stream(_rechunked(draw, _respelled(draw, parts)) if odd else parts)


def _asked(request: ReceivedRequest) -> JsonObject:
    try:
        read = json.loads(request.body)
    except (ValueError, RecursionError):
        read = None
    return read if isinstance(read, dict) else {}


def _framing(dialect: str) -> Any:
    return _RENDERERS[dialect].framing if dialect in _RENDERERS else openai_errors.FRAMING


def _error(draw: Random, dialect: str, status: int) -> bytes:
    render = _RENDERERS[dialect].error if dialect in _RENDERERS else openai_errors.error
    code, hint = draw.choice(_CODES), draw.choice(_HINTS)
    return render(status, draw.choice(_WORDS), code=code, extra=hint)


# Errors and breakages.


def _refusal(draw: Random, dialect: str) -> Script:
    """Return an error before the first byte of a reply."""
    framing, status = _framing(dialect), draw.choice(_STATUSES)
    match draw.randrange(8):
        case 0:
            return (framing.whole(status, _PAGE, "text/html", draw.choice(_HINTS)),)
        case 1:
            body = json.dumps(draw.choice(material.table("errors"))[0]).encode()
            return (framing.whole(status, body, extra=draw.choice(_HINTS)),)
        case 2:
            return (framing.whole(draw.choice(_ODD_STATUSES), b""),)
        case 3:
            return (End.EOF,)
        case _:
            return (_error(draw, dialect, status),)


def _broken(  # noqa: C901, PLR0911, PLR0912 - one of many ways each
    draw: Random, dialect: str, asked: JsonObject, parts: list[bytes], *, streams: bool
) -> Script:
    framing, kind = _framing(dialect), EVENTS if streams else JSON
    at = draw.randrange(len(parts) + 1)
    body = b"".join(parts)
    match draw.randrange(13):
        case 0 | 1:
            how = draw.choice(("eof", "short"))
            return framing.cut(parts, kind, draw.randrange(len(body) + 1), how)
        case 2 if streams:
            return framing.stream(parts[:at])
        case 3 if streams:
            return framing.stream([*parts[:at], _failure(draw, dialect, asked, at), *parts[at:]])
        case 4 if streams:
            bad = draw.choice((b'data: {"choices": [\n\n', b"data: \xff\n\n", b"data: " + _PAGE))
            return framing.stream([*parts[:at], bad + b"\n\n", *parts[at:]])
        case 5 if streams:
            return framing.stream([*parts[:at], *parts[max(0, at - 1) :]])
        case 6 if streams:
            return framing.stream([*parts[: max(0, at - 1)], *parts[at:]])
        case 7 if streams:
            draw.shuffle(parts)
            return framing.stream(parts)
        case 8:
            return (framing.whole(200, b"", kind),)
        case 9:
            return (framing.whole(200, _PAGE, "text/html"),)
        case 10:
            said = json.dumps(draw.choice(material.table("errors"))[0]).encode()
            return (framing.whole(200, said, draw.choice((JSON, EVENTS))),)
        case 11:
            return (framing.whole(200, body, draw.choice(("text/plain", EVENTS, JSON))),)
        case _ if streams:
            return (framing.whole(200, body, kind),)
        case _:
            return (framing.whole(200, body[: draw.randrange(len(body) + 1)], kind),)


def _failure(draw: Random, dialect: str, asked: JsonObject, at: int) -> bytes:
    if dialect in _RENDERERS and draw.random() < 0.5:
        return _RENDERERS[dialect].failure(_told(draw, dialect, asked), at)
    return _framed(json.dumps(draw.choice(material.table("errors"))[0]).encode())


# Replies.


def _reply(draw: Random, dialect: str, asked: JsonObject) -> bytes:
    """Return the body of a whole reply."""
    if dialect not in _RENDERERS:
        body = _completion(asked, material.text(draw))
    elif draw.random() < 0.55:
        body = json.loads(_RENDERERS[dialect].whole(_told(draw, dialect, asked)))
    else:
        said = draw.choice(material.wholes(dialect))
        try:
            body = json.loads(said)
        except ValueError:
            return said
    return json.dumps(_altered(draw, body), ensure_ascii=draw.random() < 0.5).encode()


def _events(draw: Random, dialect: str, asked: JsonObject) -> list[bytes]:
    """Return the events of a stream, each with its name where it has one."""
    how = draw.random()
    if dialect not in _RENDERERS:
        listed = _completion_chunks(draw, asked)
    elif how < 0.5:
        listed = list(_RENDERERS[dialect].events(_told(draw, dialect, asked)))
    elif how < 0.85:
        listed = [_framed(data) for data in draw.choice(material.streams(dialect))]
    else:
        listed = [_framed(json.dumps(each).encode()) for each in _pieces_of_calls(draw, dialect)]
    if draw.random() < 0.35:
        # What differs from the usual is most often at the end.
        at = len(listed) - 1 - min(int(draw.expovariate(0.5)), len(listed) - 1)
        try:
            body = json.loads(listed[at].partition(b"data: ")[2])
        except ValueError:
            return listed
        listed[at] = _framed(json.dumps(_altered(draw, body, always=True)).encode())
    if dialect in {"chat", "completions"} and not listed[-1].startswith(b"data: [DONE]"):
        listed += [chat_renderer.DONE] * (draw.random() < 0.8)
    return listed


def _told(draw: Random, dialect: str, asked: JsonObject) -> Said:
    """Return what a model says: texts, thoughts and calls of the tools that it was given."""
    names = _tool_names(asked) or ["look"]
    given = _ARGUMENTS if dialect == "messages" else (*_ARGUMENTS, *_BAD_ARGUMENTS)
    calls = tuple(
        Call(draw.choice(names), draw.choice(given)) for _ in range(draw.choice((0, 0, 0, 1, 2, 3)))
    )
    text = "" if calls and draw.random() < 0.5 else material.text(draw)
    options = asked.get("stream_options")
    known = {"stream_options": options if isinstance(options, dict) else {}}
    return Said(
        {"model": asked.get("model"), **known},
        draw.choice((CACHED, Used(10, 5), Used(7, 3, 2), Used(0, 1), Used(5, 0))),
        text=material.LONG[:_LONG] if draw.random() < 0.005 else text,
        refuses=draw.random() < 0.06,
        thought=material.text(draw) if draw.random() < 0.35 else "",
        shown=draw.random() < 0.8,
        sealed=draw.random() < 0.5,
        calls=calls,
        cut=draw.random() < 0.1,
        sequence="END" if draw.random() < 0.1 else None,
    )


def _tool_names(asked: JsonObject) -> list[str]:
    tools = asked.get("tools")
    listed: list[Any] = tools if isinstance(tools, list) else []
    known = [each for each in listed if isinstance(each, dict)]
    names = [(each.get("function") or each.get("custom") or each) for each in known]
    return [
        name["name"]
        for name in names
        if isinstance(name, dict) and isinstance(name.get("name"), str)
    ]


def _altered(draw: Random, body: Any, *, always: bool = False) -> Any:
    """Return a reply or an event with another usage, another end, or anything else changed."""
    how = draw.random() * (0.4 if always else 1)
    if how < 0.2 and isinstance(body, dict):
        return _with_usage(draw, body)
    if how < 0.25:
        _set_end(body, draw.choice(_ENDS))
        return body
    return material.changed(draw, body) if how < 0.4 else body


def _with_usage(draw: Random, body: JsonObject) -> JsonObject:
    known = material.table("usage")
    usual = "response" if isinstance(body.get("response"), dict) else "message"
    above = body[usual] if isinstance(body.get(usual), dict) else body
    match draw.randrange(7):
        case 0:
            above.pop("usage", None)
        case 1 | 2 | 3:
            above["usage"] = draw.choice(list(known["counts"].values()))[0]
        case 4:
            above["usage"] = draw.choice(known["unusable"])
        case _:
            above.pop("usage", None)
            for name, value in draw.choice(list(known["places"].values()))[0].items():
                body.setdefault(name, value)
    return body


def _set_end(body: Any, end: str | None) -> None:
    for each in body if isinstance(body, list) else body.values() if isinstance(body, dict) else ():
        _set_end(each, end)
    if isinstance(body, dict):
        body |= {name: end for name in _END_NAMES if name in body}


def _pieces_of_calls(draw: Random, dialect: str) -> list[JsonObject]:
    """Return a stream whose calls, blocks or items come in an order of their own."""
    if dialect != "chat":
        return _in_an_order(dialect, draw.choice(list(material.table("orders")[dialect].values())))
    known: list[Any] = draw.choice(list(material.table("calls").values()))
    rows = known[:-1] if "meant" in known[-1] else known
    deltas = [
        each["delta"] if "delta" in each else each if isinstance(each, dict) else _calls(each)
        for each in rows
    ]
    choices = [{"index": 0, "delta": each, "finish_reason": None} for each in deltas]
    end = {"index": 0, "delta": {}, "finish_reason": draw.choice(_ENDS)}
    return [{"id": "c", "choices": [each]} for each in (*choices, end)]


def _calls(short: list[JsonObject]) -> JsonObject:
    listed: list[JsonObject] = []
    for each in short:
        names = {"n": "name", "a": "arguments"}
        function = {names[name]: each[name] for name in names if name in each}
        own = {long: each[name] for name, long in (("i", "index"), ("id", "id")) if name in each}
        listed.append(own | ({"function": function} if function else {}))
    return {"tool_calls": listed}


def _in_an_order(dialect: str, rows: list[JsonObject]) -> list[JsonObject]:
    known = [(kind, fields) for each in rows for kind, fields in each.items()]
    if dialect == "messages":
        said = [{"type": f"content_block_{kind}", **fields} for kind, fields in known]
        message = {"id": "m", "content": [], "usage": {"input_tokens": 1, "output_tokens": 1}}
        end = {"delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}}
        ends = [{"type": "message_delta", **end}, {"type": "message_stop"}]
        return [{"type": "message_start", "message": message}, *said, *ends]
    *known, (_, output) = known
    said = [{"type": f"response.{kind}", **fields} for kind, fields in known]
    response = {"id": "r", "status": "completed", "output": output}
    created = {"type": "response.created", "response": {"id": "r", "status": "in_progress"}}
    return [created, *said, {"type": "response.completed", "response": response}]


# Completions, replies without output, and spelling.


def _completion(asked: JsonObject, text: str) -> JsonObject:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": "stop"}
    usage = {"prompt_tokens": 4, "completion_tokens": 5, "total_tokens": 9}
    known = {"id": "cmpl-tollhouse", "object": "text_completion", "created": openai_errors.CREATED}
    return {**known, "model": asked.get("model"), "choices": [choice], "usage": usage}


def _completion_chunks(draw: Random, asked: JsonObject) -> list[bytes]:
    parts = pieces(material.text(draw))
    chunks = [_completion(asked, part) for part in (*parts, "")]
    for each in chunks[:-1]:
        del each["usage"]
        each["choices"][0]["finish_reason"] = None
    return [*(_framed(json.dumps(each).encode()) for each in chunks), chat_renderer.DONE]


def _without_output(draw: Random, dialect: str, asked: JsonObject) -> Script:
    """Return embeddings, or a count of tokens."""
    if dialect == "embeddings" and draw.random() < 0.5:
        return embeddings(asked)
    counts = [b'{"input_tokens":9}', b'{"input_tokens":"9"}']
    known = material.wholes(dialect) if dialect == "embeddings" else counts
    try:
        body = _altered(draw, json.loads(draw.choice(known)))
    except ValueError:
        body = None
    return (_framing(dialect).whole(200, json.dumps(body).encode()),)


def _framed(data: bytes) -> bytes:
    try:
        read = json.loads(data)
    except ValueError:
        read = None
    kind = read.get("type") if isinstance(read, dict) else None
    name = f"event: {kind}\n".encode() if isinstance(kind, str) else b""
    lines = b"".join(b"data: %b\n" % line for line in data.split(b"\n"))
    return name + lines + b"\n"


def _respelled(draw: Random, events: Sequence[bytes]) -> list[bytes]:
    """Return the same events, written in another legal way.

    Source: https://html.spec.whatwg.org/multipage/server-sent-events.html, "9.2.5 Parsing".
    """
    match draw.randrange(5):
        case 0:
            return [each.replace(b"\n", b"\r\n") for each in events]
        case 1:
            return [each.replace(b"data: ", b"data:") for each in events]
        case 2:
            return [b": a comment\nid: 7\nretry: 9\n" + each for each in events]
        case 3:
            return [b"\xef\xbb\xbf", *events]
        case _:
            return list(events)


def _rechunked(draw: Random, events: Sequence[bytes]) -> list[bytes]:
    whole, found, at = b"".join(events), list[bytes](), 0
    while at < len(whole):
        found.append(whole[at : at + draw.randrange(1, 400)])
        at += len(found[-1])
    return found
