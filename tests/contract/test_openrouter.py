"""The published `openrouter` library, 1.3.84, against a running gateway."""

from typing import Any

import pytest

from tests.contract.conftest import Gateway

COST = 3 * 0.000_001 + 3 * 0.000_002


@pytest.fixture(scope="module")
def seen(gateway: Gateway) -> dict[str, Any]:
    return gateway.run("openrouter")


@pytest.fixture
def sync(seen: dict[str, Any]) -> dict[str, Any]:
    return seen["sync"]


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("kind", ["whole", "streamed"])
def test_a_chat_is_what_the_model_said_at_its_cost(
    seen: dict[str, Any], mode: str, kind: str
) -> None:
    reply = seen[mode][kind]
    assert reply["content"] == "one two three"
    assert reply["completion_tokens"] == 3
    assert reply["cost"] == pytest.approx(COST, rel=1e-12)


def test_models_can_be_listed_and_counted(gateway: Gateway, sync: dict[str, Any]) -> None:
    assert gateway.model in sync["models"]
    assert sync["model_count"] == len(sync["models"])


def test_a_key_reads_its_own_counters(sync: dict[str, Any]) -> None:
    key = sync["key"]
    assert key["usage"] > 0
    assert key["usage"] == key["usage_daily"] == key["usage_weekly"] == key["usage_monthly"]
    assert key["limit"] is None
    assert key["limit_remaining"] is None
    assert key["is_management_key"] is False
    assert key["workspace_id"] == sync["management_key"]["workspace_id"]


def test_a_management_key_reads_itself_too(sync: dict[str, Any]) -> None:
    assert sync["management_key"]["is_management_key"] is True
    assert sync["management_key"]["usage"] == 0


def test_credits_are_what_was_granted_and_used(sync: dict[str, Any]) -> None:
    assert sync["credits"]["total_credits"] == 1_000
    # The account's; tests of other keys may have used some of it.
    assert sync["credits"]["total_usage"] >= sync["key"]["usage"] > 0


def test_credits_are_refused_to_an_api_key(sync: dict[str, Any]) -> None:
    assert sync["credits_refused"] == {"class": "ForbiddenResponseError", "status": 403}


def test_a_generation_can_be_read_by_the_reply_s_id(gateway: Gateway, sync: dict[str, Any]) -> None:
    generation = sync["generation"]
    assert generation["id"] == sync["whole"]["id"]
    assert generation["model"] == gateway.model
    assert generation["total_cost"] == sync["whole"]["cost"]
    assert generation["tokens_completion"] == 3
    assert generation["cancelled"] is False


def test_a_key_is_made_found_changed_and_deleted(sync: dict[str, Any]) -> None:
    assert sync["made_key_text_begins"] == "sk-th-v1-"
    assert sync["made_key"]["name"] == "made by the library"
    assert sync["renamed"] == sync["fetched"] == "renamed"
    assert "renamed" in sync["listed"]
    assert True in sync["deleted"].values()


def test_a_workspace_is_made_found_changed_and_deleted(sync: dict[str, Any]) -> None:
    spaces = sync["workspaces"]
    assert spaces["created"] == "Research"
    assert "research" in spaces["listed"]
    assert spaces["fetched"] is True
    assert spaces["updated"] == "Lab"
    assert True in spaces["deleted"].values()


def test_embeddings_are_vectors_at_their_cost(gateway: Gateway, sync: dict[str, Any]) -> None:
    reply = sync["embeddings"]
    assert reply["model"] == gateway.embedding_model
    assert [item["index"] for item in reply["data"]] == [0, 1]
    assert all(len(item["embedding"]) >= 4 for item in reply["data"])
    assert reply["usage"]["prompt_tokens"] == reply["usage"]["total_tokens"] == 3
    assert reply["usage"]["cost"] == pytest.approx(3 * 0.000_001, rel=1e-12)


def test_a_key_s_activity_is_what_it_asked_and_used(gateway: Gateway, sync: dict[str, Any]) -> None:
    rows = {row["model"]: row for row in sync["activity"]["data"]}
    assert rows.keys() == {gateway.model, gateway.embedding_model}
    chat, embedding = rows[gateway.model], rows[gateway.embedding_model]
    assert chat["model_permaslug"] == gateway.model
    assert chat["endpoint_id"] == f"{chat['provider_name']}/{gateway.model}"
    assert chat["requests"] >= 2
    assert chat["completion_tokens"] == chat["prompt_tokens"] == 3 * chat["requests"]
    assert (chat["reasoning_tokens"], chat["cached_tokens"]) == (0, 0)
    assert (embedding["requests"], embedding["completion_tokens"]) == (1, 0)
    used = chat["usage"] + embedding["usage"]
    assert used == pytest.approx(sync["key"]["usage"], rel=1e-12)
    assert sync["activity_of_another_day"] == {"data": []}


def test_activity_is_split_by_workspace_where_that_is_asked(sync: dict[str, Any]) -> None:
    rows = sync["activity_by_workspace"]["data"]
    assert {row["workspace_id"] for row in rows} == {sync["key"]["workspace_id"]}
    assert {row.get("workspace_id") for row in sync["activity"]["data"]} == {None}


def test_activity_is_refused_to_an_api_key(sync: dict[str, Any]) -> None:
    assert sync["activity_refused"] == {"class": "ForbiddenResponseError", "status": 403}
