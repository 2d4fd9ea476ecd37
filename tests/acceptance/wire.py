"""A gateway before scripted providers of each dialect, and requests to it in each format."""

import json
from dataclasses import dataclass
from typing import Any

import httpx2

from tests.support.accounts import body
from tests.support.format_clients import Chat, FormatClient, Messages, ParsedReply, Responses
from tests.support.scripted_providers import ScriptedProviders
from tests.support.server_process import ServerProcess
from tests.support.stream_folding import streamed

_PRICE = '{prompt: "0.001", completion: "0.01", input_cache_read: "0.0001"}'
_KINDS = {
    "chat": "openai_compatible, dialects: [chat, completions, embeddings]",
    "responses": "openai_compatible, dialects: [responses]",
    "messages": "anthropic",
}
_REFUSING = """\
  - slug: refusing
    kind: openai_compatible
    base_url: {origin}/refusing/v1
    refuses: [max_tokens, temperature, stream_options]
  - {{slug: silent, kind: openai_compatible, base_url: "https://127.0.0.1:{silent}"}}
"""
DIALECTS = tuple(_KINDS)
JSON = {"Content-Type": "application/json"}
CLIENTS: dict[str, FormatClient] = {
    "chat": Chat(),
    "responses": Responses(),
    "messages": Messages(),
}
"""A client of each dialect's own format."""
_BY_PATH = {each.path: each for each in CLIENTS.values()}
FORMATS = tuple(_BY_PATH)


def config(server: ScriptedProviders) -> str:
    """Return settings with `t/DIALECT`, and with `t/DIALECT-two` that has a second endpoint."""
    origin, silent = server.origin, server.silent.getsockname()[1]
    providers = "".join(
        f"  - {{slug: {name}, kind: {kind}, base_url: {origin}/{name}/v1, api_key: k-{name}-key}}\n"
        for dialect, kind in _KINDS.items()
        for name in (dialect, f"{dialect}-b")
    )
    models = "".join(
        f"  - id: t/{dialect}{suffix}\n    context_length: 200000\n    endpoints:\n"
        + "".join(
            f"      - {{provider: {each}, model: m{suffix}, pricing: {_PRICE}}}\n" for each in names
        )
        for dialect in _KINDS
        for suffix, names in (("", [dialect]), ("-two", [dialect, f"{dialect}-b"]))
    )
    return (
        "accounting: {initial_grant: '1000000'}\n"
        "upstream: {cool_down_seconds: 0.000001}\n"
        f"providers:\n{providers}{_REFUSING.format(origin=origin, silent=silent)}models:\n{models}"
        "  - id: t/refusing\n    context_length: 200000\n    endpoints:\n"
        f"      - {{provider: refusing, model: m, pricing: {_PRICE}}}\n"
        "  - id: t/chat-half\n    context_length: 200000\n    endpoints:\n"
        f"      - {{provider: chat, model: m, batch_price_factor: '0.5', pricing: {_PRICE}}}\n"
        "  - id: t/chat:free\n    context_length: 200000\n    requests_per_minute: 1\n"
        "    endpoints: [{provider: chat, model: m, pricing: free}]\n"
        "  - id: t/silent\n    context_length: 200000\n    endpoints:\n"
        f"      - {{provider: silent, model: m, pricing: {_PRICE}}}\n"
        "  - id: t/renaming\n    context_length: 200000\n    endpoints:\n"
        f"      - {{provider: chat, model: m, refuses: [temperature, stream_options],"
        f" output_limit: max_completion_tokens, pricing: {_PRICE}}}\n"
    )


@dataclass(frozen=True)
class Wire:
    """The running gateway and its providers."""

    server: ServerProcess
    providers: ScriptedProviders

    def ask(self, model: str, form: str = "/chat/completions", **fields: Any) -> httpx2.Response:
        """Send a request in a format."""
        return httpx2.post(
            f"{self.server.base_url}{form}",
            content=json.dumps(body(form, model, **fields)),  # as ASCII, halves of characters too
            headers=self.server.authorization | JSON,
            timeout=20,
        )

    def usage(self) -> float:
        """Return what the key has spent so far."""
        headers = self.server.authorization
        return httpx2.get(f"{self.server.base_url}/key", headers=headers).json()["data"]["usage"]

    def differences(self) -> Any:
        """Return what `ledger verify` finds."""
        transport = httpx2.HTTPTransport(uds=str(self.server.control_socket))
        with httpx2.Client(transport=transport, base_url="http://local/v1") as http:
            return http.get("/ledger/verify", timeout=60).json()["data"]["differences"]

    def metric(self, name: str) -> float:
        """Return a counter's value."""
        shown = httpx2.get(f"{self.server.origin}/metrics").text.splitlines()
        return float(next(line for line in shown if line.startswith(f"{name} ")).split()[1])


def events(reply: httpx2.Response) -> list[Any]:
    """Return the events of a stream, without the last `[DONE]`."""
    lines = [line[6:] for line in reply.text.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def text_of(reply: httpx2.Response, form: str) -> str:
    """Return what a reply says, whole or streamed; a stream has to be legal and complete."""
    return _parsed(reply, form).text


def calls_of(reply: httpx2.Response, form: str) -> tuple[tuple[str, Any], ...]:
    """Return the names and arguments of a reply's calls, as `text_of` does."""
    return _parsed(reply, form).calls


def _parsed(reply: httpx2.Response, form: str) -> ParsedReply:
    client, streams = _BY_PATH[form], "event-stream" in reply.headers["content-type"]
    return (client.streamed if streams else client.whole)(reply.content)


def said(dialect: str, text: str, **changes: Any) -> dict[str, Any]:
    """Return a whole reply in a dialect."""
    usage = {"input_tokens": 7, "output_tokens": 3}
    match dialect:
        case "chat":
            choice = {"index": 0, "finish_reason": "stop"} | changes
            message = {"role": "assistant", "content": text}
            return {
                "id": "c1",
                "object": "chat.completion",
                "created": 1,
                "model": "m",
                "choices": [{"message": message} | choice],
                "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
            }
        case "messages":
            return {
                "id": "m1",
                "type": "message",
                "role": "assistant",
                "model": "m",
                "content": [{"type": "text", "text": text}],
                "stop_reason": "end_turn",
                "stop_sequence": None,
                "usage": usage,
            } | changes
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"type": "message", "id": "i", "role": "assistant", "status": "completed"}
    return {
        "id": "r1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "completed",
        "output": [item | {"content": [part]}],
        "usage": usage | {"total_tokens": 10},
    } | changes


def calling(dialect: str, *calls: tuple[str, str, Any], text: str = "") -> dict[str, Any]:
    """Return a whole reply of a text and calls: ids, names of tools, and arguments."""
    whole = said(dialect, text)
    match dialect:
        case "chat":
            message = whole["choices"][0]["message"] | {"content": text or None}
            message["tool_calls"] = [
                {"index": number, "id": call, "type": "function"}
                | {"function": {"name": name, "arguments": _compact(given)}}
                for number, (call, name, given) in enumerate(calls)
            ]
            return said("chat", "", message=message, finish_reason="tool_calls")
        case "messages":
            blocks = [
                {"type": "tool_use", "id": call, "name": name, "input": given}
                for call, name, given in calls
            ]
            before = whole["content"] if text else []
            return whole | {"content": [*before, *blocks], "stop_reason": "tool_use"}
    items = [
        {"type": "function_call", "id": f"fc_{call}", "call_id": call, "status": "completed"}
        | {"name": name, "arguments": _compact(given)}
        for call, name, given in calls
    ]
    return whole | {"output": [*(whole["output"] if text else []), *items]}


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def told(dialect: str, text: str) -> list[Any]:
    """Return the events of a streamed reply in a dialect."""
    whole = said(dialect, text)
    match dialect:
        case "chat":
            chunk = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
            delta = {"role": "assistant", "content": text}
            choice = {"index": 0, "logprobs": None}
            return [
                chunk | {"choices": [choice | {"delta": delta, "finish_reason": None}]},
                chunk | {"choices": [choice | {"delta": {}, "finish_reason": "stop"}]},
                chunk | {"choices": [], "usage": whole["usage"]},
            ]
        case "messages":
            return streamed(dialect, whole)
    events = streamed(dialect, whole)
    return [each | {"sequence_number": number} for number, each in enumerate(events)]
