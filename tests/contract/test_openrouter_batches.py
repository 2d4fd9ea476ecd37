"""Batches from submission to deletion with the published `openrouter` library, 1.3.84."""

from contextlib import closing
from itertools import chain
from typing import Any

import pytest

from tests.contract.conftest import POSTGRESQL, SIMULATED, Gateway
from tests.support.accounts import Accounts

pytestmark = [
    pytest.mark.contract,
    pytest.mark.parametrize(
        "gateway",
        [SIMULATED, pytest.param(POSTGRESQL, marks=[pytest.mark.postgresql, pytest.mark.soak])],
        indirect=True,
        scope="session",
    ),
]

KEYS = {
    *("id", "object", "endpoint", "model", "completion_window", "status", "created_at"),
    *("expires_at", "finalized_at", "error", "provider", "request_counts", "results", "usage"),
}
STATES = {
    (202, "validating"),
    (200, "in_progress"),
    (200, "completed"),
    (200, "failed"),
    (200, "cancelled"),
    (402, "completed"),
}
COST = 3 * 0.000_001 + 3 * 0.000_002


@pytest.fixture(scope="module")
def seen(gateway: Gateway) -> dict[str, Any]:
    with closing(Accounts(gateway.server)) as accounts:
        poor, stranger = accounts.create("0.005"), accounts.create("1")
    return gateway.run(
        "openrouter",
        "check_batches.py",
        PROVIDER=gateway.provider,
        POOR_KEY=poor.key,
        POOR_ACCOUNT=poor.account_id,
        STRANGERS_KEY=stranger.key,
    )


@pytest.fixture(scope="module")
def lists(seen: dict[str, Any]) -> dict[str, Any]:
    return seen["lists"]


def refusal(told: dict[str, Any]) -> tuple[str, int, int]:
    return told["class"], told["status"], told["code"]


def test_a_batch_is_submitted_to_the_provider_that_was_named_and_comes_to_its_end(
    gateway: Gateway, seen: dict[str, Any]
) -> None:
    course = seen["course"]
    assert course["classes"] == ["BatchObject", "BatchObject"]
    assert (course["made"]["status"], course["made"]["results"]) == ("validating", None)
    found = course["ended"]
    assert found["status"] == "completed"
    assert found["provider"].lower() == gateway.provider
    assert found["request_counts"] == {"total": 2, "completed": 2, "failed": 0}
    assert found["finalized_at"] >= found["created_at"]
    assert course["texts"] == {"item-0": "one two", "item-1": "three"}


def test_the_usage_of_a_batch_is_that_of_its_requests(seen: dict[str, Any]) -> None:
    usage = seen["course"]["ended"]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (3, 3, 6)
    assert usage["cost"] == pytest.approx(COST, rel=1e-12)


def test_a_batch_that_was_deleted_is_gone(seen: dict[str, Any]) -> None:
    course = seen["course"]
    assert course["deleted"]["id"] == course["made"]["id"]
    assert course["deleted"]["deletion"]["openrouter"] == "deleted"
    assert refusal(course["gone"]["get"]) == ("BatchErrorResponse", 410, 410)
    assert refusal(course["gone"]["delete"]) == ("BatchErrorResponse", 404, 404)
    assert not course["listed"]


def test_a_batch_that_failed_as_a_whole_says_why_and_has_no_results(seen: dict[str, Any]) -> None:
    assert seen["failed"]["results"] is None
    assert "requests[0]: messages: " in seen["failed"]["message"]


def test_a_batch_under_way_has_no_results_and_cannot_be_deleted(seen: dict[str, Any]) -> None:
    assert seen["under way"]["running"] is None
    assert refusal(seen["under way"]["delete"]) == ("BatchErrorResponse", 409, 409)


def test_a_batch_that_was_cancelled_has_an_error_for_what_was_not_run(seen: dict[str, Any]) -> None:
    assert seen["under way"]["words"] == ["batch_cancelled"]
    counts = seen["under way"]["counts"]
    assert counts["completed"] + counts["failed"] == counts["total"] == 100


# Lists


def test_a_list_is_read_page_by_page_newest_first_until_there_is_none(
    lists: dict[str, Any],
) -> None:
    newest, oldest = lists["ids"]
    assert lists["all"] == [[newest], [oldest], []]


def test_a_list_has_the_statuses_that_are_asked_for(lists: dict[str, Any]) -> None:
    assert lists["one status"] == [lists["ids"][1:], []]
    assert lists["two statuses"] == [lists["ids"], []]
    assert lists["other statuses"] == [[]]


def test_a_list_has_the_time_that_is_asked_for(lists: dict[str, Any]) -> None:
    assert lists["after"] == lists["before"] == [lists["ids"], []]
    assert lists["after now"] == lists["before then"] == [[]]


# Credits


def test_a_batch_that_may_cost_more_than_there_is_is_refused(seen: dict[str, Any]) -> None:
    assert refusal(seen["too dear"]) == ("BatchErrorResponse", 402, 402)


def test_results_that_are_not_paid_are_withheld(seen: dict[str, Any]) -> None:
    told = seen["withheld"]
    assert (told["class"], told["status"]) == ("BatchPaymentRequiredResponseError", 402)
    batch = told["data"]
    assert (batch["id"], batch["status"], batch["results"]) == (told["id"], "completed", None)
    assert batch["error"]["code"] == 402
    assert batch["request_counts"] == {"total": 1, "completed": 1, "failed": 0}


def test_results_that_were_withheld_are_there_once_there_are_credits(seen: dict[str, Any]) -> None:
    assert seen["withheld"]["released"] == ["completed", 1]


# Refusals


@pytest.mark.parametrize(
    ("case", "status", "says"),
    [
        ("empty", 400, "requests: "),
        ("empty id", 400, "requests[0].custom_id: "),
        ("twice", 422, "requests[1].custom_id: duplicate 'a'"),
        ("large", 413, "requests[0].body: "),
        ("unknown model", 400, "model: No model 'nobody/nothing'"),
        ("variant", 422, "model: the variant ':nitro'"),
        ("callback", 400, "callback_url: "),
        ("provider", 400, "provider.only: "),
        ("no key", 401, "Invalid API key."),
        ("management key", 403, "management key"),
        ("no such get", 404, "No such batch."),
        ("no such delete", 404, "No such batch."),
        ("another's get", 404, "No such batch."),
        ("another's delete", 404, "No such batch."),
        ("page", 400, "after: "),
        ("limit", 400, "limit: "),
    ],
)
def test_a_refusal_is_the_library_s_own_class(
    seen: dict[str, Any], case: str, status: int, says: str
) -> None:
    told = seen["refusals"][case]
    assert refusal(told) == ("BatchErrorResponse", status, status)
    assert says in told["message"]


# The wire


def test_every_key_of_a_batch_is_there_in_every_state(seen: dict[str, Any]) -> None:
    states = {(status, batch["status"]) for status, batch in seen["batches"]}
    assert states >= STATES
    assert {frozenset(batch) for _, batch in seen["batches"]} == {frozenset(KEYS)}


def test_every_key_of_a_batch_is_there_in_lists_and_results_are_null(seen: dict[str, Any]) -> None:
    pages = seen["items of lists"]
    batches = list(chain.from_iterable(page["data"] for page in pages))
    assert {frozenset(batch) for batch in batches} == {frozenset(KEYS)}
    assert all(batch["results"] is None for batch in batches)
    assert {frozenset(page) for page in pages} == {
        frozenset({"object", "data", "first_id", "last_id", "has_more"})
    }
