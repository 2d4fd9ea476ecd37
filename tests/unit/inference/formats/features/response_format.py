"""The response format that a request asks for."""

from __future__ import annotations

from typing import Any

from tests.unit.inference.formats.features.feature import MARK, Body, Places, RequestFeature, in_all
from tests.unit.inference.formats.features.request_parts import ALL, SCHEMA, fields

ANY_OBJECT = (
    "Answer with one valid JSON object and nothing else: no text around it and no code fence."
)


def _answer() -> dict[str, RequestFeature]:
    def schema(**more: Any) -> dict[str, Body]:
        given = {"name": "answer", "schema": SCHEMA, **more}
        return {
            "chat": {"response_format": {"type": "json_schema", "json_schema": given}},
            "responses": {"text": {"format": {"type": "json_schema", **given}}},
        }

    def own(**given: Any) -> dict[str, Places]:
        return {
            "chat": {f"response_format.json_schema.{name}": given[name] for name in given},
            "responses": {f"text.format.{name}": given[name] for name in given},
        }

    config = {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}
    text = {
        "chat": {"response_format": {"type": "json_object"}},
        "responses": {"text": {"format": {"type": "json_object"}}},
    }
    tokens = {
        "chat": {"max_completion_tokens": 77},
        "responses": {"max_output_tokens": 77},
        "messages": {"max_tokens": 77},
        "completions": {"max_tokens": 77},
    }
    limit: dict[str, Places] = {**tokens, "chat": {"max_tokens": 77}}
    return {
        "structured output (JSON schema)": RequestFeature(
            says={**schema(), "messages": config},
            own={
                **own(schema=SCHEMA),
                "messages": {"output_config.format.schema": SCHEMA},
            },
            covers=("JsonOutput.schema", "CanonicalRequest.output"),
            parameter="output",
        ),
        "schema name": RequestFeature(
            says=schema(name=MARK),
            beside=schema(),
            own=own(name=MARK),
            covers=("JsonOutput.name",),
        ),
        "schema description": RequestFeature(
            says=schema(description=MARK),
            beside=schema(),
            own=own(description=MARK),
            covers=("JsonOutput.description",),
        ),
        "schema `strict`": RequestFeature(
            says=schema(strict=True),
            beside=schema(),
            own=own(strict=True),
            covers=("JsonOutput.strict",),
        ),
        "JSON mode (`json_object`)": RequestFeature(
            says=text,
            own={
                "chat": {"response_format": {"type": "json_object"}},
                "responses": {"text.format": {"type": "json_object"}},
            },
            other={"messages": {"system.0.text": ANY_OBJECT}},
            parameter="output",
        ),
        "other response formats (`grammar`)": RequestFeature(
            says={
                "chat": {"response_format": {"type": "grammar", "grammar": MARK}},
                "responses": {"text": {"format": {"type": "grammar", "grammar": MARK}}},
            }
        ),
        "streaming": RequestFeature(
            says=fields((*ALL, "completions"), stream=True),
            own=in_all(ALL, {"stream": True}),
            covers=("CanonicalRequest.stream",),
        ),
        "output limit (`max_tokens`)": RequestFeature(
            says=tokens, own=limit, covers=("CanonicalRequest.max_tokens",), parameter="max_tokens"
        ),
        "stop sequences": RequestFeature(
            says={
                **fields(("chat", "responses", "completions"), stop=[MARK]),
                "messages": {"stop_sequences": [MARK]},
            },
            own={"chat": {"stop": [MARK]}, "messages": {"stop_sequences": [MARK]}},
            covers=("CanonicalRequest.stop",),
            parameter="stop",
        ),
        "verbosity": RequestFeature(
            says={"chat": {"verbosity": "low"}, "responses": {"text": {"verbosity": "low"}}},
            own={"chat": {"verbosity": "low"}, "responses": {"text.verbosity": "low"}},
            covers=("CanonicalRequest.verbosity",),
            parameter="verbosity",
        ),
        "several choices (`n`)": RequestFeature(
            says=fields(("chat", "completions"), n=2),
            own={"chat": {"n": 2}},
            covers=("CanonicalRequest.choices",),
            parameter="choices",
        ),
        "log-probabilities (`logprobs`)": RequestFeature(
            says={
                "chat": {"logprobs": True},
                "responses": {"include": ["message.output_text.logprobs"]},
            },
            own={
                "chat": {"logprobs": True},
                "responses": {"include": ["message.output_text.logprobs"]},
            },
            covers=("CanonicalRequest.logprobs",),
            parameter="logprobs",
        ),
        "`top_logprobs`": RequestFeature(
            says={"chat": {"logprobs": True, "top_logprobs": 3}, "responses": {"top_logprobs": 3}},
            own=in_all(("chat", "responses"), {"top_logprobs": 3}),
            covers=("CanonicalRequest.top_logprobs",),
            parameter="top_logprobs",
        ),
        "`logprobs` of completions": RequestFeature(says={"completions": {"logprobs": 3}}),
    }


RESPONSE_FORMAT: dict[str, RequestFeature] = {**_answer()}
