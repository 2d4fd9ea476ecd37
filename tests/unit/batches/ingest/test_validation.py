"""What is refused as a batch, and with which status and words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.batches.ingest.bodies import item, submitted
from tollhouse.batches.ingest.reader import BatchLimits, BatchValidator
from tollhouse.batches.ingest.splitter import SubmittedItem
from tollhouse.batches.types import BatchEndpoint, Submission
from tollhouse.kernel.errors import TollhouseError, status_of

LIMITS = BatchLimits(body_bytes=2_000, items=3, item_bytes=500)
ENDPOINTS = (
    "endpoint: has to be one of /v1/chat/completions, /v1/responses, /v1/messages, /v1/embeddings"
)


def take(body: bytes, limits: BatchLimits = LIMITS) -> tuple[list[SubmittedItem], Submission]:
    intake = BatchValidator(limits)
    items = [*intake.feed(body)]
    last, submission = intake.end()
    return [*items, *last], submission


def refusal(body: bytes) -> tuple[int, str]:
    with pytest.raises(TollhouseError) as caught:
        take(body)
    return status_of(caught.value), caught.value.message


def test_a_batch_is_its_items_and_its_envelope() -> None:
    items, submission = take(
        submitted(
            item("a", max_tokens=1),
            item("b"),
            endpoint="/v1/messages",
            completion_window="24h",
            provider={"only": ["acme"], "allow_fallbacks": False},
            callback_url="https://hooks.example/batch",
        )
    )
    assert items == [SubmittedItem(0, "a", b'{"max_tokens": 1}'), SubmittedItem(1, "b", b"{}")]
    assert submission == Submission(
        BatchEndpoint.MESSAGES,
        "acme/large",
        {"only": ["acme"], "allow_fallbacks": False},
        "https://hooks.example/batch",
    )


@pytest.mark.parametrize("provider", [None, {}])
def test_nobody_is_wished_for_where_nothing_is_said(provider: object) -> None:
    _, submission = take(submitted(item(), provider=provider, callback_url=None))
    assert submission == Submission(BatchEndpoint.CHAT_COMPLETIONS, "acme/large", {})


def test_fields_that_nobody_knows_are_ignored() -> None:
    take(submitted(item() | {"method": "POST"}, metadata={"team": "a"}))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"endpoint": "/v1/images"}, ENDPOINTS),
        ({"endpoint": None}, ENDPOINTS),
        ({"model": ""}, "model: Expected `str` of length >= 1"),
        ({"completion_window": "48h"}, "completion_window: Invalid enum value '48h'"),
        ({"provider": {"colour": []}}, "provider: has no field 'colour'"),
        ({"provider": {"only": [5]}}, "provider.only[0]: Expected `str`, got `int`."),
        (
            {"provider": {"max_price": {"prompt": -1}}},
            "provider.max_price.prompt: must be a price of at least 0.",
        ),
        ({"provider": "acme"}, "provider: Expected `object | null`, got `str`"),
        ({"callback_url": "http://hooks.example"}, "callback_url: has to be an https address"),
        ({"callback_url": "https://["}, "callback_url: has to be an https address"),
        ({"callback_url": "https://"}, "callback_url: has to be an https address"),
    ],
)
def test_a_wrong_field_is_a_400_that_names_it(fields: dict[str, Any], message: str) -> None:
    assert refusal(submitted(item(), **fields)) == (400, message)


@pytest.mark.parametrize("missing", ["endpoint", "model"])
def test_a_missing_field_is_a_400_that_names_it(missing: str) -> None:
    fields = json.loads(submitted(item()))
    del fields[missing]
    message = f"Object missing required field `{missing}`"
    assert refusal(json.dumps(fields).encode()) == (400, message)


@pytest.mark.parametrize("body", [submitted(), b'{"model": "a/b"}'])
def test_no_item_is_a_400(body: bytes) -> None:
    assert refusal(body) == (400, "requests: has to have at least one item")


def test_an_empty_id_is_a_400() -> None:
    message = "requests[1].custom_id: must not be empty"
    assert refusal(submitted(item(), item(""))) == (400, message)


@pytest.mark.parametrize("custom_id", ["a", "x" * 33])
def test_an_id_that_stands_twice_is_a_422(custom_id: str) -> None:
    body = submitted(item(custom_id), item("b"), item(custom_id))
    assert refusal(body) == (422, f"requests[2].custom_id: duplicate '{custom_id}'")


def test_a_duplicate_is_found_across_pieces() -> None:
    intake = BatchValidator(BatchLimits())
    items = [item("a", text="x" * 600_000), item("b", text="x" * 600_000), item("a")]
    body = submitted(*items)
    intake.feed(body[:1_100_000])
    assert intake.count == 1
    intake.feed(body[1_100_000:])
    with pytest.raises(TollhouseError, match="duplicate 'a'"):
        intake.end()


def test_long_ids_are_not_cut_where_they_are_compared() -> None:
    take(submitted(item("x" * 40 + "1"), item("x" * 40 + "2")))


def test_more_items_than_allowed_are_a_422() -> None:
    body = submitted(*(item(str(number)) for number in range(4)))
    assert refusal(body) == (422, "requests: has more than 3 items")


def test_one_byte_more_than_allowed_is_a_413() -> None:
    body = submitted(item())
    padded = body + b" " * (LIMITS.body_bytes - len(body))
    take(padded)
    assert refusal(padded + b" ") == (413, "The batch is larger than 2000 bytes.")


def test_an_item_that_is_too_large_is_a_413_that_names_it() -> None:
    status, message = refusal(submitted(item(), item("b", text="x" * 500)))
    assert status == 413
    assert message.startswith("requests[1].body: has 512 bytes; 500 are allowed")


def test_what_is_no_json_is_a_400() -> None:
    assert refusal(submitted(item())[:-1]) == (
        400,
        "requests: no comma or brace follows, the body ends (byte 104)",
    )


def test_invalid_utf_8_names_its_item() -> None:
    body = submitted(item(), item("b", text="?")).replace(b"?", b"\xff")
    assert refusal(body)[0] == 400
    assert refusal(body)[1].startswith("requests[1]: not valid UTF-8")
