"""A stub server for OpenAI and Anthropic: their published APIs, and every way in which they fail.

    $ python -m tests.support.providers.openai_upstream --port 0
    {"port": 41223}

    POST /v1/chat/completions, /v1/responses, /v1/embeddings                    as OpenAI
    POST /v1/messages, /v1/messages/count_tokens                                as Anthropic

Responses are complete or streamed, and requests are validated as by the provider. The model name
chooses the behaviour; (c), (r), (m) mark names of chat, responses or messages only:

    echo, *-2026          repeats the last user message; a token is a word; limits and stop
                          sequences are honoured, images echoed as `[image/png 67 bytes]`
    cached                echo; usage with tokens from a cache and of reasoning
                          (2048 prompt, 1920 cached, 300 completion, 256 reasoning)
    tools                 calls the first tool of the request; echoes tool results
                          (r), (m): after reasoning, if the request enables it
    two-tools             calls the first two, arguments from their schemas; echoes the results
    custom                (r) calls the first custom tool with the user's text
    reasoning             (r) a reasoning item as requested
    reasoning-details     (c) as OpenRouter: `reasoning` and signed `reasoning_details`
    thinking, redacted    (m) a thinking block, and a redacted one, if thinking is enabled
    refusal               refuses to answer
    json                  a value of the request's JSON schema: its required properties
    slow-head:<s>         echo after s seconds
    slow-chunks:<ms>      50 pieces with a pause after each; 0 is one write for each piece
    drip:<ms>             echo, one byte of the body in each chunk (streamed always)
    headers:<code>             an error that quotes the headers of the request
    status:<code>[:retry=<s>]  an error in the provider's shape, with Retry-After
    overloaded            (m) 529
    garbage               200, but not JSON
    html-502              502 from a proxy in front
    cut:<n>:eof           after n bytes of a chunked body the connection ends
    cut:<n>:short         the same in a body with Content-Length
    cut:<n>:rst           the same with a TCP reset
    hang                  never answers
    error-in-stream       an error event after some deltas (whole: 500); (r) response.failed
    duplicate-done        (c) two [DONE]
    no-done               (c) a finish_reason, then a clean end without [DONE]
                          (r) a clean end without a terminal event
    no-finish             (c) a clean end without finish_reason and [DONE]
    no-stop               (m) a clean end without message_stop
    ping                  (m) a ping after every event
    comments, crlf        SSE comments between the events; CRLF line ends

`GET /_seen` returns `RequestStats`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from typing import TYPE_CHECKING, Final, cast

import msgspec

from tests.support.providers import (
    chat_renderer,
    messages_renderer,
    openai_errors,
    published,
    responses_renderer,
)
from tests.support.providers.anthropic_requests import MessagesRequest
from tests.support.providers.openai_embeddings import embeddings
from tests.support.providers.openai_requests import ChatRequest, ResponsesRequest
from tests.support.providers.stub_behaviours import Exchange, behaviour_of, respond
from tests.support.providers.stub_text import Refused
from tests.support.providers.upstream_server import serve

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.providers.byte_script import Script
    from tests.support.providers.stub_reply import Renderer, StubRequest
    from tests.support.providers.upstream_server import ReceivedRequest

_RENDERERS: Final[dict[str, Renderer]] = {
    "/v1/chat/completions": chat_renderer,
    "/v1/responses": responses_renderer,
    "/v1/messages": messages_renderer,
    "/v1/messages/count_tokens": messages_renderer,
}
_CHECKS: Final[dict[str, Callable[[ReceivedRequest, object], StubRequest]]] = {
    "/v1/chat/completions": lambda _, body: ChatRequest(body),
    "/v1/responses": lambda _, body: ResponsesRequest(body),
    "/v1/messages": lambda request, body: MessagesRequest(request.headers, body),
    "/v1/messages/count_tokens": lambda request, body: MessagesRequest(
        request.headers, body, counts=True
    ),
}


def _answer(request: ReceivedRequest) -> Script:
    path, body = request.path.partition("?")[0], _decoded(request.body)
    if (status := _asked_for_headers(body)) is not None:
        said = f"Invalid request: {json.dumps(request.headers)}"
        return (openai_errors.error(status, said),)
    if request.method == "POST" and path == "/v1/embeddings":
        return embeddings(body)
    if request.method != "POST" or path not in _RENDERERS:
        unknown = openai_errors.error_body(400, f"Invalid URL ({request.method} {request.path})")
        return (openai_errors.FRAMING.whole(404, unknown),)
    renderer = _RENDERERS[path]
    try:
        exchange = Exchange(_CHECKS[path](request, body), renderer)
    except Refused as wrong:
        told = {"param": wrong.param, "code": wrong.code}
        return (renderer.error(wrong.status, wrong.message, **told),)
    return _counted(exchange) if path.endswith("/count_tokens") else respond(exchange)


def _counted(exchange: Exchange) -> Script:
    if behaviour_of(exchange.request.model) is None:
        return (exchange.renderer.unknown(exchange.request.model),)
    counted = {"input_tokens": exchange.request.input_tokens()}
    return (exchange.renderer.framing.whole(200, msgspec.json.encode(counted)),)


def _asked_for_headers(body: object) -> int | None:
    """Return the status of an error that quotes the headers; None if none is requested."""
    model = cast("dict[str, object]", body).get("model") if isinstance(body, dict) else None
    asked, _, status = model.partition(":") if isinstance(model, str) else ("", "", "")
    return int(status) if asked == "headers" else None


def _decoded(body: bytes) -> object:
    """Decode the JSON; None for an invalid body."""
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None


async def _serve(port: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    published.load()
    async with serve(_answer, port=port) as (bound, _):
        sys.stdout.write(json.dumps({"port": bound}) + "\n")
        sys.stdout.flush()
        await stop.wait()


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description="A stand-in for OpenAI and Anthropic.")
    parser.add_argument("--port", type=int, default=0, help="TCP port on 127.0.0.1; 0 is any")
    port: int = parser.parse_args().port
    asyncio.run(_serve(port))


if __name__ == "__main__":
    main()
