"""Sampling parameters and metadata of a request."""

from __future__ import annotations

from typing import Any

from tests.unit.inference.formats.features.feature import MARK, RequestFeature, in_all
from tests.unit.inference.formats.features.request_parts import ALL, fields


def _sampling() -> dict[str, RequestFeature]:
    values: dict[str, Any] = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.1,
        "top_a": 0.2,
        "frequency_penalty": 0.3,
        "presence_penalty": 0.4,
        "repetition_penalty": 1.1,
        "seed": 7,
        "logit_bias": {"50256": -100},
        "prompt_cache_key": MARK,
        "safety_identifier": MARK,
    }
    lacks = {
        "responses": {"logit_bias"},
        "messages": values.keys() - {"temperature", "top_p", "top_k"},
        "completions": {"top_a", "prompt_cache_key", "safety_identifier"},
    }
    return {
        f"`{name}`": RequestFeature(
            says={
                client: {name: value}
                for client in (*ALL, "completions")
                if name not in lacks.get(client, ())
            },
            own=in_all(ALL, {name: value}),
            covers=("CanonicalRequest.sampling",),
            parameter=name,
        )
        for name, value in values.items()
    }


def _more_sampling() -> dict[str, RequestFeature]:
    both = (*ALL, "completions")
    hot = ("chat", "responses", "completions")
    return {
        "`temperature` above 1": RequestFeature(
            says=fields(hot, temperature=1.5),
            own=in_all(("chat", "responses"), {"temperature": 1.5}),
            other={"messages": {"temperature": 1.0}},
        ),
        "`top_p` together with `temperature`": RequestFeature(
            says=fields(both, temperature=0.5, top_p=0.9),
            beside=fields(both, temperature=0.5),
            own=in_all(ALL, {"top_p": 0.9}),
        ),
        "`service_tier` default": RequestFeature(
            says={
                **fields(("chat", "responses"), service_tier="default"),
                "messages": {"service_tier": "standard_only"},
            },
            own={
                **in_all(("chat", "responses"), {"service_tier": "default"}),
                "messages": {"service_tier": "standard_only"},
            },
            parameter="service_tier",
        ),
        "`service_tier` flex or priority": RequestFeature(
            says=fields(("chat", "responses"), service_tier="flex"),
            own=in_all(("chat", "responses"), {"service_tier": "flex"}),
        ),
    }


def _about() -> dict[str, RequestFeature]:
    return {
        "end user (`user`, `metadata.user_id`)": RequestFeature(
            says={
                **fields(("chat", "responses", "completions"), user=MARK),
                "messages": {"metadata": {"user_id": MARK}},
            },
            own={
                "chat": {"user": MARK},
                "responses": {"user": MARK},
                "messages": {"metadata": {"user_id": MARK}},
            },
            covers=("CanonicalRequest.user",),
            parameter="user",
        ),
        "`metadata`": RequestFeature(
            says=fields(("chat", "responses"), metadata={"key": MARK}),
            own=in_all(("chat", "responses"), {"metadata": {"key": MARK}}),
            covers=("CanonicalRequest.metadata",),
            parameter="metadata",
        ),
        "stored responses (`store`, `previous_response_id`)": RequestFeature(
            says={"responses": {"store": True, "previous_response_id": MARK}}
        ),
        "stored prompt template (`prompt`)": RequestFeature(
            says={"responses": {"prompt": {"id": MARK}}}
        ),
        "`truncation`": RequestFeature(says={"responses": {"truncation": "auto"}}),
        "`context_management`": RequestFeature(
            says={"messages": {"context_management": {"edits": []}}}
        ),
        "`modalities`, `prediction`": RequestFeature(
            says={
                "chat": {
                    "modalities": ["text", "audio"],
                    "prediction": {"type": "content", "content": MARK},
                },
                "responses": {"modalities": ["text", "audio"]},
            }
        ),
        "`suffix`, `echo`, `best_of`": RequestFeature(
            says={"completions": {"suffix": MARK, "echo": True, "best_of": 2}}
        ),
        "the gateway's own fields": RequestFeature(
            says=fields((*ALL, "completions"), provider={"order": [MARK]}, session_id=MARK)
        ),
        "any other field": RequestFeature(says=fields((*ALL, "completions"), novelty=MARK)),
    }


SAMPLING: dict[str, RequestFeature] = {**_sampling(), **_more_sampling(), **_about()}
