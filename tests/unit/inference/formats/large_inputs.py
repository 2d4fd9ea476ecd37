"""Requests, replies and streams that are large in one dimension each: `n` items or characters."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Body = dict[str, Any]

PNG = "data:image/png;base64,iVBORw0KGgo="
PDF = "data:application/pdf;base64,JVBERi0xLjQ="
SCHEMA: Body = {"type": "object", "properties": {"a": {"type": "string"}}}
HI: Body = {"role": "user", "content": "hi"}
LINES = "a line of text\n"


# Requests


def _chat(*messages: Body, **fields: Any) -> Body:
    return {"model": "m", "messages": list(messages), **fields}


def _call(number: int, arguments: str = "{}") -> Body:
    return {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": "f", "arguments": arguments},
    }


def _result(number: int) -> Body:
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": "ok"}


def _detail(number: int) -> Body:
    kinds: tuple[Body, ...] = (
        {"type": "reasoning.summary", "summary": "hm"},
        {"type": "reasoning.encrypted", "data": "x", "id": f"rs_{number}"},
        {"type": "reasoning.text", "text": "hm", "signature": "s"},
    )
    return kinds[number % 3]


def _calls(n: int) -> list[Body]:
    return [_call(number) for number in range(n)]


CHAT: Mapping[str, Callable[[int], Body]] = {
    "tool messages": lambda n: _chat(
        HI, {"role": "assistant", "tool_calls": _calls(1)}, *map(_result, range(n))
    ),
    "tool calls": lambda n: _chat(HI, {"role": "assistant", "tool_calls": _calls(n)}, _result(0)),
    "a result after each call": lambda n: _chat(
        *(
            each
            for number in range(n // 2)
            for each in (
                {"role": "assistant", "tool_calls": [_call(number)]},
                _result(number),
            )
        )
    ),
    "parts": lambda n: _chat({"role": "user", "content": [{"type": "text", "text": "a"}] * n}),
    "images": lambda n: _chat(
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": PNG}}] * n}
    ),
    "documents": lambda n: _chat(
        {"role": "user", "content": [{"type": "file", "file": {"file_data": PDF}}] * n}
    ),
    "short messages": lambda n: _chat(*[HI] * n),
    "alternating roles": lambda n: _chat(*[HI, {"role": "assistant", "content": "a"}] * (n // 2)),
    "assistant messages": lambda n: _chat(HI, *[{"role": "assistant", "content": "a"}] * n),
    "system messages": lambda n: _chat(*[{"role": "system", "content": "a"}] * n, HI),
    "tools": lambda n: _chat(
        HI,
        tools=[
            {"type": "function", "function": {"name": f"f{number}", "parameters": SCHEMA}}
            for number in range(n)
        ],
        tool_choice={"type": "function", "function": {"name": f"f{n - 1}"}},
    ),
    "reasoning details": lambda n: _chat(
        HI, {"role": "assistant", "content": "a", "reasoning_details": [*map(_detail, range(n))]}
    ),
    "stop sequences": lambda n: _chat(HI, stop=[f"stop{number}" for number in range(n)]),
    "a long text": lambda n: _chat({"role": "user", "content": LINES * 4 * n}),
    "long arguments": lambda n: _chat(
        HI, {"role": "assistant", "tool_calls": [_call(0, json.dumps({"a": LINES * 4 * n}))]}
    ),
    "options of a scripted question": lambda n: _chat(
        {"role": "user", "content": "ask: which? (" + "|" * 20 * n}
    ),
    "unknown fields": lambda n: _chat(HI, **{f"field{number}": number for number in range(n)}),
}


def _responses(*items: Body, **fields: Any) -> Body:
    return {"model": "m", "input": list(items), **fields}


def _function_call(number: int) -> Body:
    return {"type": "function_call", "call_id": f"call_{number}", "name": "f", "arguments": "{}"}


def _output(number: int) -> Body:
    return {"type": "function_call_output", "call_id": f"call_{number}", "output": "ok"}


RESPONSES: Mapping[str, Callable[[int], Body]] = {
    "function calls": lambda n: _responses(HI, *map(_function_call, range(n))),
    "outputs": lambda n: _responses(HI, _function_call(0), *map(_output, range(n))),
    "an output after each call": lambda n: _responses(
        *(each for number in range(n // 2) for each in (_function_call(number), _output(number)))
    ),
    "reasoning": lambda n: _responses(
        HI,
        *(
            {
                "type": "reasoning",
                "id": f"rs_{number}",
                "summary": [{"type": "summary_text", "text": "hm"}],
                "encrypted_content": "x",
            }
            for number in range(n)
        ),
    ),
    "summaries": lambda n: _responses(
        HI, {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}] * n}
    ),
    "parts": lambda n: _responses(
        {"role": "user", "content": [{"type": "input_text", "text": "a"}] * n}
    ),
    "images": lambda n: _responses(
        {"role": "user", "content": [{"type": "input_image", "image_url": PNG}] * n}
    ),
    "documents": lambda n: _responses(
        {"role": "user", "content": [{"type": "input_file", "file_data": PDF}] * n}
    ),
    "short messages": lambda n: _responses(*[HI] * n),
    "alternating roles": lambda n: _responses(
        *[HI, {"role": "assistant", "content": "a"}] * (n // 2)
    ),
    "assistant messages": lambda n: _responses(HI, *[{"role": "assistant", "content": "a"}] * n),
    "system messages": lambda n: _responses(*[{"role": "developer", "content": "a"}] * n, HI),
    "tools": lambda n: _responses(
        HI,
        tools=[
            {"type": "function", "name": f"f{number}", "parameters": SCHEMA, "strict": True}
            for number in range(n // 2)
        ]
        + [{"type": "custom", "name": f"c{number}"} for number in range(n // 2)],
        tool_choice={"type": "function", "name": f"f{n // 2 - 1}"},
    ),
    "calls of tools that take a text": lambda n: _responses(
        HI,
        *(
            {"type": "custom_tool_call", "call_id": f"c{number}", "name": "p0", "input": "a"}
            for number in range(n)
        ),
        tools=[{"type": "custom", "name": f"p{number}"} for number in range(n)],
    ),
    "a long text": lambda n: _responses({"role": "user", "content": LINES * 4 * n}),
    "unknown items": lambda n: _responses(HI, *[{"type": "new_kind", "id": "x"}] * n),
}


def _messages(*messages: Body, **fields: Any) -> Body:
    return {"model": "m", "max_tokens": 9, "messages": list(messages), **fields}


def _user(*content: Body) -> Body:
    return {"role": "user", "content": list(content)}


def _model(*content: Body) -> Body:
    return {"role": "assistant", "content": list(content)}


def _use(number: int) -> Body:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": "f", "input": {"a": "b"}}


def _tool_result(number: int) -> Body:
    return {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": "ok"}


TEXT: Body = {"type": "text", "text": "a"}
THOUGHT: Body = {"type": "thinking", "thinking": "hm", "signature": "s"}
MESSAGES: Mapping[str, Callable[[int], Body]] = {
    "tool results": lambda n: _messages(
        _user(TEXT), _model(_use(0)), _user(*map(_tool_result, range(n)))
    ),
    "messages of a tool result": lambda n: _messages(
        _user(TEXT), _model(_use(0)), *(_user(_tool_result(number)) for number in range(n))
    ),
    "tool uses": lambda n: _messages(_user(TEXT), _model(*map(_use, range(n)))),
    "a result after each use": lambda n: _messages(
        *(
            each
            for number in range(n // 2)
            for each in (_model(_use(number)), _user(_tool_result(number)))
        )
    ),
    "thoughts": lambda n: _messages(_user(TEXT), _model(*[THOUGHT] * n)),
    "parts": lambda n: _messages(_user(*[TEXT] * n)),
    "images": lambda n: _messages(
        _user(*[{"type": "image", "source": {"type": "url", "url": "https://a.example/b"}}] * n)
    ),
    "documents": lambda n: _messages(
        _user(
            *[
                {
                    "type": "document",
                    "source": {"type": "text", "media_type": "text/plain", "data": "a"},
                }
            ]
            * n
        )
    ),
    "short messages": lambda n: _messages(*[HI] * n),
    "alternating roles": lambda n: _messages(
        *[HI, {"role": "assistant", "content": "a"}] * (n // 2)
    ),
    "system blocks": lambda n: _messages(HI, system=[TEXT] * n),
    "tools": lambda n: _messages(
        HI,
        tools=[{"name": f"f{number}", "input_schema": SCHEMA} for number in range(n)],
        tool_choice={"type": "tool", "name": f"f{n - 1}"},
    ),
    "stop sequences": lambda n: _messages(HI, stop_sequences=[f"s{number}" for number in range(n)]),
    "a long text": lambda n: _messages({"role": "user", "content": LINES * 4 * n}),
}
COMPLETIONS: Mapping[str, Callable[[int], Body]] = {
    "a long text": lambda n: {"model": "m", "prompt": LINES * 4 * n},
    "stop sequences": lambda n: {"model": "m", "prompt": "a", "stop": [str(i) for i in range(n)]},
}
REQUESTS = {
    "/chat/completions": CHAT,
    "/responses": RESPONSES,
    "/messages": MESSAGES,
    "/completions": COMPLETIONS,
}


# Complete replies


def _chat_reply(*messages: Body, **choice: Any) -> Body:
    return {
        "id": "c",
        "object": "chat.completion",
        "choices": [
            {"index": index, "message": message, "finish_reason": "stop", **choice}
            for index, message in enumerate(messages)
        ],
    }


TOKENS: Body = {"content": [{"token": "a", "logprob": 0.0, "bytes": [97], "top_logprobs": []}]}


def _said(**fields: Any) -> Body:
    return {"role": "assistant", "content": "a", **fields}


def _message(*content: Body) -> Body:
    return {
        "id": "msg",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": list(content),
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 3, "output_tokens": 2},
    }


def _response(*items: Body) -> Body:
    return {
        "id": "resp",
        "object": "response",
        "status": "completed",
        "model": "m",
        "output": list(items),
    }


def _spoken(*parts: Body) -> Body:
    return {"type": "message", "id": "msg", "role": "assistant", "content": list(parts)}


OUTPUT: Body = {"type": "output_text", "text": "a", "annotations": []}
REFUSAL: Body = {"type": "refusal", "refusal": "no"}
REASONING: Body = {
    "type": "reasoning",
    "id": "rs",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "x",
}

REPLIES: Mapping[str, Mapping[str, Callable[[int], Body]]] = {
    "chat": {
        "choices": lambda n: _chat_reply(*[_said()] * n),
        "tool calls": lambda n: _chat_reply(_said(tool_calls=_calls(n))),
        "reasoning details": lambda n: _chat_reply(
            _said(reasoning_details=[*map(_detail, range(n))])
        ),
        "a long text": lambda n: _chat_reply(_said(content=LINES * 4 * n)),
        "log-probabilities": lambda n: _chat_reply(
            _said(), logprobs={"content": TOKENS["content"] * n}
        ),
    },
    "messages": {
        "texts": lambda n: _message(*[TEXT] * n),
        "thoughts": lambda n: _message(*[THOUGHT] * n),
        "tool uses": lambda n: _message(*map(_use, range(n))),
        "a long text": lambda n: _message({"type": "text", "text": LINES * 4 * n}),
    },
    "responses": {
        "messages": lambda n: _response(*[_spoken(OUTPUT)] * n),
        "parts": lambda n: _response(_spoken(*[OUTPUT, REFUSAL] * (n // 2))),
        "reasoning": lambda n: _response(*[REASONING] * n),
        "function calls": lambda n: _response(*map(_function_call, range(n))),
        "a long text": lambda n: _response(_spoken({**OUTPUT, "text": LINES * 4 * n})),
    },
}


# Streams: the events' data


def _empty_use(number: int) -> Body:
    return {**_use(number), "input": {}}


def _chunk(delta: Body, index: int = 0, finish: str | None = None, **choice: Any) -> Body:
    return {
        "id": "c",
        "choices": [{"index": index, "delta": delta, "finish_reason": finish, **choice}],
    }


def _piece(index: int, arguments: str, **call: Any) -> Body:
    return _chunk({"tool_calls": [{"index": index, **call, "function": {"arguments": arguments}}]})


def _begin(index: int) -> Body:
    return _chunk({"tool_calls": [{**_call(index, ""), "index": index}]})


def _chat_stream(*chunks: Body) -> list[Body]:
    return [*chunks, _chunk({}, finish="stop")]


def _message_stream(*blocks: tuple[Body, list[Body]]) -> list[Body]:
    events: list[Body] = [{"type": "message_start", "message": {**_message(), "stop_reason": None}}]
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
        ]
        events.append({"type": "content_block_stop", "index": index})
    return [
        *events,
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}},
        {"type": "message_stop"},
    ]


def _response_stream(*items: Body, deltas: int = 1) -> list[Body]:
    events: list[Body] = [
        {"type": "response.created", "response": {**_response(), "status": "in_progress"}}
    ]
    for index, item in enumerate(items):
        at = {"output_index": index}
        blank: Body = {**item, "content": []} if item["type"] == "message" else item
        events.append({"type": "response.output_item.added", **at, "item": blank})
        for number, part in enumerate(item.get("content", ())):
            here = {**at, "content_index": number}
            kind = part["type"]
            name, empty = ("refusal", "refusal") if kind == "refusal" else ("output_text", "text")
            events.append(
                {"type": "response.content_part.added", **here, "part": {**part, empty: ""}}
            )
            events += [{"type": f"response.{name}.delta", **here, "delta": "a"}] * deltas
        events.append({"type": "response.output_item.done", **at, "item": item})
    return [*events, {"type": "response.completed", "response": _response(*items)}]


STREAMS: Mapping[str, Mapping[str, Callable[[int], list[Body]]]] = {
    "chat": {
        "texts": lambda n: _chat_stream(*[_chunk({"content": "a"})] * n),
        "texts with log-probabilities": lambda n: _chat_stream(
            *[_chunk({"content": "a"}, logprobs=TOKENS)] * n
        ),
        "choices": lambda n: [
            *(_chunk({"content": "a"}, index) for index in range(n)),
            *(_chunk({}, index, "stop") for index in range(n)),
        ],
        "calls": lambda n: _chat_stream(*(_begin(index) for index in range(n))),
        "calls that are never complete": lambda n: _chat_stream(
            *(event for index in range(n // 2) for event in (_begin(index), _piece(index, "{")))
        ),
        "pieces of a call": lambda n: _chat_stream(
            _begin(0), _piece(0, '{"a":"'), *[_piece(0, "b")] * n
        ),
        "pieces of two calls in turn": lambda n: _chat_stream(
            _begin(0),
            _piece(0, '{"a":"' + "b" * 40),
            _begin(1),
            *[_piece(0, "b" * 40), _piece(1, "c")] * (n // 2),
        ),
        "pieces of a call behind a long one": lambda n: _chat_stream(
            _begin(0), _piece(0, '{"a":"' + "b" * 40 * n), _begin(1), *[_piece(1, "c")] * n
        ),
        "reasoning details": lambda n: _chat_stream(
            *(_chunk({"reasoning_details": [_detail(number)]}) for number in range(n))
        ),
        "texts and refusals in turn": lambda n: _chat_stream(
            *[_chunk({"content": "a"}), _chunk({"refusal": "b"})] * (n // 2)
        ),
        "a long text": lambda n: _chat_stream(_chunk({"content": LINES * 4 * n})),
    },
    "messages": {
        "texts": lambda n: _message_stream(
            *[({**TEXT, "text": ""}, [{"type": "text_delta", "text": "a"}])] * n
        ),
        "deltas": lambda n: _message_stream(
            ({**TEXT, "text": ""}, [{"type": "text_delta", "text": "a"}] * n)
        ),
        "thoughts": lambda n: _message_stream(
            *[
                (
                    {**THOUGHT, "thinking": "", "signature": ""},
                    [
                        {"type": "thinking_delta", "thinking": "hm"},
                        {"type": "signature_delta", "signature": "s"},
                    ],
                )
            ]
            * n
        ),
        "tool uses": lambda n: _message_stream(
            *(
                (
                    _empty_use(number),
                    [{"type": "input_json_delta", "partial_json": "{}"}],
                )
                for number in range(n)
            )
        ),
        "pieces of a tool use": lambda n: _message_stream(
            (_empty_use(0), [{"type": "input_json_delta", "partial_json": "1"}] * n)
        ),
    },
    "responses": {
        "messages": lambda n: _response_stream(*[_spoken(OUTPUT)] * n),
        "parts": lambda n: _response_stream(_spoken(*[OUTPUT, REFUSAL] * (n // 2))),
        "deltas": lambda n: _response_stream(_spoken(OUTPUT), deltas=n),
        "reasoning": lambda n: _response_stream(*[REASONING] * n),
        "function calls": lambda n: _response_stream(*map(_function_call, range(n))),
    },
}
