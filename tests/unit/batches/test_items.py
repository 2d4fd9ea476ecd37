import asyncio
import json
from decimal import Decimal
from typing import Any

import pytest

from tests.support.batches import batch
from tests.support.builders import api_key, charge, generation_record
from tests.support.clock import START
from tests.support.seams.accounting import Usage
from tests.support.seams.batches import (
    BatchProgress,
    ItemError,
    ItemResult,
    call_of,
    generation_id,
    is_retryable,
    item_error,
    progress_of,
)
from tests.support.seams.identity import AccessPolicy, subject_of
from tests.support.seams.inference import InferenceRequest, MaxPrice, Preferences, Steps
from tollhouse.kernel.clock import Now
from tollhouse.kernel.errors import (
    Bug,
    Forbidden,
    Invalid,
    NotFound,
    ProviderModerated,
    ProviderOverloaded,
    ProviderRateLimited,
    ProviderRefused,
    ProviderTimeout,
    ProviderUnavailable,
    TollhouseError,
    Unavailable,
    Unroutable,
)

NOW = Now(START, 5.0)
MODEL = "acme/large"
SAID: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}


def asked(body: dict[str, Any] | bytes, *policies: AccessPolicy, **fields: Any) -> InferenceRequest:
    subject = subject_of(api_key(), policies)
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return asyncio.run(call_of(Steps(), batch(**fields), MODEL, subject, raw, NOW))


def test_an_item_is_priced_as_one() -> None:
    assert asked(SAID).in_batch


@pytest.mark.parametrize("name", ["models", "fallbacks"])
def test_an_item_has_no_further_models(name: str) -> None:
    with pytest.raises(Invalid, match=f"^{name}: a batch has one model"):
        asked({**SAID, name: ["acme/small"]})


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
        zdr=True,
        by_price=True,
        max_price=MaxPrice(prompt=Decimal(2), completion=Decimal(5), image=Decimal(1)),
    )


def test_what_the_batchs_sender_said_of_itself_holds_for_its_items() -> None:
    one = batch()
    subject, body = subject_of(api_key()), json.dumps(SAID).encode()
    call = asyncio.run(call_of(Steps(), one, MODEL, subject, body, NOW))
    assert call.attribution == one.attribution
    assert call.received == NOW


BATCH = batch()
ERROR = ItemError("invalid_request_error", "It is wrong.", "messages[0]", "invalid_request")


def test_a_reply_is_called_the_same_however_often_its_item_is_run() -> None:
    assert generation_id(BATCH, 7) == generation_id(batch(completed=5), 7)


def test_no_two_items_have_replies_of_one_name() -> None:
    names = {generation_id(each, at) for at in range(500) for each in (BATCH, batch(id="batch_2"))}
    assert len(names) == 1_000


def test_the_text_of_a_bug_stays_inside() -> None:
    assert "secret" not in item_error(Bug("secret")).message


@pytest.mark.parametrize(
    "error",
    [
        ProviderRateLimited("", provider_name="a"),
        ProviderOverloaded("", provider_name="a"),
        ProviderTimeout("", provider_name="a"),
        ProviderUnavailable("", provider_name="a"),
        Unavailable(""),
    ],
)
def test_what_is_the_providers_fault_passes(error: TollhouseError) -> None:
    assert is_retryable(error)


@pytest.mark.parametrize(
    "error",
    [
        ProviderRefused("", provider_name="a"),
        ProviderModerated("", provider_name="a"),
        Invalid(""),
        Forbidden(""),
        NotFound(""),
        Unroutable(""),
        Bug(""),
    ],
)
def test_what_is_the_requests_fault_does_not_pass(error: TollhouseError) -> None:
    assert not is_retryable(error)


def test_progress_counts_what_was_booked_now_and_nothing_twice() -> None:
    usage = Usage(1, 2, 3, 4, 5, 6)
    first = generation_record(id="gen-1", charge=charge(70, usage=usage), provider="Acme")
    again = generation_record(id="gen-2", charge=charge(900, usage=usage))
    outcomes = [
        ItemResult(0, b"", first),
        ItemResult(1, b"", again),
        ItemResult(2, b"", error=ERROR),
        ItemResult(3, b"", generation_record(id="gen-3", charge=charge(0)), ERROR),
    ]
    assert progress_of(outcomes, {"gen-1", "gen-3"}) == BatchProgress(
        completed=2,
        failed=2,
        unrun=1,
        usage=Usage(11, 2, 3, 4, 10, 6),
        cost_nano=70,
        provider="Acme",
        error="requests[2]: It is wrong.",
    )
