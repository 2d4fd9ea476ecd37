"""Passing embeddings through: request parsing, and vectors in the requested encoding."""

import json
import struct
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.accounting.types import FREE, Charge, Cost, CostState, Usage
from tollhouse.inference.formats.adapter import ErrorEvent, MalformedResponse
from tollhouse.inference.formats.embeddings import (
    EmbeddingsPassthroughAdapter,
    EmbeddingsResponse,
    parse_request,
)
from tollhouse.inference.types import Endpoint, ReplyIdentity
from tollhouse.kernel.errors import Bug, Invalid

IDENTITY = ReplyIdentity("gen-1", "acme/embedding", "Acme", 1_700_000_000)
CHARGE = Charge(CostState.EXACT, Usage(input_tokens=8), 24, 24, Cost(24, 24, 0))
VECTOR = [0.5, -1.25, 3.0]
PACKED = b64encode(struct.pack("<3f", *VECTOR)).decode()
floats32 = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=20)


def adapter(**fields: Any) -> EmbeddingsPassthroughAdapter:
    body = {"model": "acme/embedding", "input": "hello"} | fields
    return EmbeddingsPassthroughAdapter(parse_request(json.dumps(body).encode()))


def reply_of(*vectors: object, **fields: Any) -> bytes:
    data = [
        {"object": "embedding", "index": index, "embedding": vector}
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": 8, "total_tokens": 8}
    whole = {"object": "list", "data": data, "model": "embedding-2026", "usage": usage}
    return json.dumps(whole | fields).encode()


def rendered(read: EmbeddingsResponse) -> dict[str, Any]:
    return json.loads(read.render(IDENTITY, CHARGE))


def refusal(body: object) -> str:
    with pytest.raises(Invalid) as caught:
        parse_request(json.dumps(body).encode())
    return caught.value.message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "input: this field is required."),
        ({"input": None}, "input: must be a text, a list of texts or lists of tokens."),
        ({"input": 7}, "input: must be a text, a list of texts or lists of tokens."),
        ({"input": ""}, "input: must not be empty."),
        ({"input": []}, "input: must not be empty."),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format: must be float or base64."),
    ],
)
def test_an_invalid_field_is_named(fields: dict[str, Any], message: str) -> None:
    assert refusal({"model": "m"} | fields) == message


def test_a_model_is_required() -> None:
    assert refusal({"input": "a"}) == "model: this field is required."


@pytest.mark.parametrize("given_", ["a", ["a", "b"], [1, 2], [[1], [2, 3]], [{"content": []}]])
def test_every_type_of_input_is_forwarded(given_: object) -> None:
    sent = json.loads(
        adapter(input=given_, dimensions=3, user="u").render_request(
            Endpoint("acme", "embedding-2026", FREE)
        )
    )
    assert sent == {"model": "embedding-2026", "input": given_, "dimensions": 3, "user": "u"}


def test_gateway_fields_are_left_out() -> None:
    assert "provider" not in json.loads(
        adapter(provider={"only": ["acme"]}).render_request(Endpoint("acme", "m", FREE))
    )


def test_a_response_is_forwarded_with_the_gateways_fields() -> None:
    answer = rendered(adapter().parse_response(reply_of(VECTOR, id="theirs", extra=[1])))
    assert answer["id"] == "gen-1"
    assert (answer["object"], answer["model"], answer["provider"]) == (
        "list",
        "acme/embedding",
        "Acme",
    )
    assert answer["extra"] == [1]
    assert answer["data"] == [{"object": "embedding", "index": 0, "embedding": VECTOR}]
    assert answer["usage"] | {"cost_details": None} == {
        "prompt_tokens": 8,
        "total_tokens": 8,
        "cost": 24e-9,
        "is_byok": False,
        "cost_details": None,
    }


def test_a_response_is_parsed_for_its_metadata() -> None:
    read = adapter().parse_response(reply_of(VECTOR, id="theirs"))
    assert (read.reported, read.seen) == (Usage(input_tokens=8), Usage(input_tokens=8))
    assert (read.finish_reason, read.upstream_id) == ("stop", "theirs")


def test_without_usage_tokens_are_estimated_from_the_request() -> None:
    read = adapter(input="x" * 400).parse_response(reply_of(VECTOR, usage=None))
    assert read.reported is None
    assert 100 <= read.seen.input_tokens < 130


@pytest.mark.parametrize(
    ("encoding", "sent", "received"),
    [
        ("float", VECTOR, VECTOR),
        ("float", PACKED, VECTOR),
        ("base64", VECTOR, PACKED),
        ("base64", PACKED, PACKED),
        (None, PACKED, VECTOR),
    ],
)
def test_vectors_are_converted_to_the_requested_encoding(
    encoding: str | None, sent: object, received: object
) -> None:
    answer = rendered(adapter(encoding_format=encoding).parse_response(reply_of(sent)))
    assert answer["data"][0]["embedding"] == received


@given(floats32)
def test_a_vector_survives_encoding_and_decoding(vector: list[float]) -> None:
    packed = rendered(adapter(encoding_format="base64").parse_response(reply_of(vector)))
    again = rendered(adapter().parse_response(reply_of(packed["data"][0]["embedding"])))
    assert again["data"][0]["embedding"] == vector


def test_missing_fields_of_an_item_are_filled_in() -> None:
    body = json.dumps({"data": [{"embedding": [1.0]}, {"embedding": [2.0]}]}).encode()
    data = rendered(adapter().parse_response(body))["data"]
    assert [(item["object"], item["index"]) for item in data] == [
        ("embedding", 0),
        ("embedding", 1),
    ]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b"{}",
        b'{"data":{}}',
        b'{"data":[1]}',
        b'{"data":[{}]}',
        b'{"data":[{"embedding":"%%%"}]}',
        b'{"data":[{"embedding":"AAA="}]}',
    ],
)
def test_a_body_that_is_not_a_list_of_embeddings_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedResponse):
        adapter().parse_response(body)


def test_an_error_under_a_success_status_is_the_providers() -> None:
    with pytest.raises(ErrorEvent) as caught:
        adapter().parse_response(b'{"error":{"message":"too long","code":"context"}}')
    assert caught.value.code == "context"


def test_embeddings_are_not_streamed() -> None:
    assert parse_request(b'{"model":"m","input":"a","stream":true}').stream is False
    with pytest.raises(Bug):
        adapter().open_stream(IDENTITY)
