import asyncio
import json
from decimal import Decimal
from typing import Any

import pytest

from tests.support.batches import batch
from tests.support.builders import api_key
from tests.support.clock import START
from tollhouse.batches.chunks import item_line
from tollhouse.batches.items import call_of, read_line
from tollhouse.batches.types import BatchEndpoint
from tollhouse.identity.types import AccessPolicy, subject_of
from tollhouse.inference.request import InferenceRequest
from tollhouse.inference.steps import Steps
from tollhouse.inference.types import MaxPrice, Preferences
from tollhouse.kernel.clock import Now
from tollhouse.kernel.errors import Forbidden, Invalid

NOW = Now(START, 5.0)
MODEL = "acme/large"
SAID: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}


def asked(body: dict[str, Any] | bytes, *policies: AccessPolicy, **fields: Any) -> InferenceRequest:
    subject = subject_of(api_key(), policies)
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return asyncio.run(call_of(Steps(), batch(**fields), MODEL, subject, raw, NOW))


@pytest.mark.parametrize("custom_id", ["a", "", ',"body":{}', '"}', "\\", "\n\0é\u2028"])
@pytest.mark.parametrize("body", [b"{}", b'{"a": {"b": "}"}}', b'{"c":,"body":}'])
def test_an_item_is_read_as_it_was_written(custom_id: str, body: bytes) -> None:
    assert read_line(item_line(custom_id, body)) == (custom_id, body)


def test_an_item_that_is_nested_too_deeply_is_wrong() -> None:
    deep = b'{"messages":%b}' % (b"[" * 2_000 + b"]" * 2_000)
    item = read_line(item_line("a", deep))
    with pytest.raises(Invalid, match="nested too deeply"):
        asked(item.body)


def test_an_item_asks_for_the_batchs_model() -> None:
    call = asked(SAID)
    assert call.parsed.model == MODEL
    assert json.loads(call.parsed.body) == {**SAID, "model": MODEL}


def test_an_item_is_priced_as_one() -> None:
    assert asked(SAID).in_batch


def test_an_item_that_names_the_model_itself_stays_as_it_came() -> None:
    body = json.dumps({"model": MODEL, **SAID}).encode()
    assert asked(body).parsed.body is body


def test_an_item_may_name_the_model_with_the_batch_variant() -> None:
    assert asked({"model": f"{MODEL}:batch", **SAID}).parsed.model == MODEL


@pytest.mark.parametrize("model", ["acme/small", None, 5, ["acme/large"], ""])
def test_an_item_of_another_model_is_wrong(model: object) -> None:
    with pytest.raises(Invalid, match=r"^model: has to be the batch's, 'acme/large'"):
        asked({"model": model, **SAID})


@pytest.mark.parametrize("name", ["models", "fallbacks"])
def test_an_item_has_no_further_models(name: str) -> None:
    with pytest.raises(Invalid, match=f"^{name}: a batch has one model"):
        asked({**SAID, name: ["acme/small"]})


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        (BatchEndpoint.CHAT_COMPLETIONS, SAID),
        (BatchEndpoint.RESPONSES, {"input": "Hi"}),
        (BatchEndpoint.MESSAGES, {**SAID, "max_tokens": 5}),
    ],
)
def test_an_item_that_wants_a_stream_is_wrong(
    endpoint: BatchEndpoint, body: dict[str, Any]
) -> None:
    asked({**body, "stream": False}, endpoint=endpoint)
    with pytest.raises(Invalid, match=r"^stream: a request of a batch cannot be streamed"):
        asked({**body, "stream": True}, endpoint=endpoint)


def test_an_item_of_another_endpoint_is_wrong_in_that_ones_words() -> None:
    with pytest.raises(Invalid, match=r"^input: "):
        asked(SAID, endpoint=BatchEndpoint.EMBEDDINGS)


def test_an_item_that_holds_what_a_policy_does_not_let_pass_is_refused() -> None:
    with pytest.raises(Forbidden):
        asked(SAID, AccessPolicy("key", patterns=("hi",)))


@pytest.mark.parametrize(
    ("own", "preferred", "only"),
    [
        (None, None, None),
        (None, ("acme", "other"), ("acme", "other")),
        (["acme"], None, ("acme",)),
        (["ACME"], ("acme", "other"), ("acme",)),
        (["third"], ("acme",), ()),
    ],
)
def test_who_may_answer_an_item_is_the_batchs_preferences_within_its_own(
    own: list[str] | None, preferred: tuple[str, ...] | None, only: tuple[str, ...] | None
) -> None:
    body = SAID if own is None else {**SAID, "provider": {"only": own}}
    assert asked(body, preferences={"only": preferred}).preferences.only == only


@pytest.mark.parametrize(
    ("own", "preferred", "may"),
    [(None, None, True), (None, False, False), (False, True, False), (True, None, True)],
)
def test_fallbacks_need_both(own: bool | None, preferred: bool | None, may: bool) -> None:  # noqa: FBT001
    body = {**SAID, "provider": {"allow_fallbacks": own}}
    of_batch = {"allow_fallbacks": preferred}
    assert asked(body, preferences=of_batch).preferences.allow_fallbacks is may


def test_an_items_preferences_hold_within_its_batchs() -> None:
    own = {"ignore": ["a"], "sort": "price", "max_price": {"prompt": 3, "image": 1}}
    of_batch = {
        "order": ["b"],
        "ignore": ["c"],
        "data_collection": "deny",
        "zdr": True,
        "require_parameters": True,
        "max_price": {"prompt": 2, "completion": 5},
    }
    assert asked({**SAID, "provider": own}, preferences=of_batch).preferences == Preferences(
        order=("b",),
        ignore=("a", "c"),
        require_parameters=True,
        deny_data_collection=True,
        unsupported_guarantees=True,
        by_price=True,
        max_price=MaxPrice(prompt=Decimal(2), completion=Decimal(5), image=Decimal(1)),
    )


def test_what_the_batchs_sender_said_of_itself_holds_for_its_items() -> None:
    one = batch()
    subject, body = subject_of(api_key()), json.dumps(SAID).encode()
    call = asyncio.run(call_of(Steps(), one, MODEL, subject, body, NOW))
    assert call.attribution == one.attribution
    assert call.received == NOW
