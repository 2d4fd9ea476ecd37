"""The published `openai` library against a running gateway."""

from typing import Any

import pytest

from tests.contract.conftest import Gateway

COST = 3 * 0.000_001 + 3 * 0.000_002
"""Three words in, three words out: both providers count words."""


@pytest.fixture(scope="module")
def seen(gateway: Gateway) -> dict[str, Any]:
    return gateway.run("openai")


@pytest.fixture(params=["sync", "async"])
def client(request: pytest.FixtureRequest, seen: dict[str, Any]) -> dict[str, Any]:
    return seen[request.param]


def test_the_last_chunk_has_the_usage_and_no_choice_if_that_was_asked_for(
    seen: dict[str, Any],
) -> None:
    unasked, asked = seen["sync"]["streamed"], seen["async"]["streamed"]
    assert (unasked["completion_tokens"], asked["completion_tokens"]) == (3, 3)
    assert (unasked["last_has_choices"], asked["last_has_choices"]) == (True, False)


@pytest.mark.parametrize("kind", ["whole", "streamed"])
def test_usage_and_cost_stand_on_every_reply(client: dict[str, Any], kind: str) -> None:
    assert client[kind]["total_tokens"] == 6
    assert client[kind]["cost"] == pytest.approx(COST, rel=1e-12)


def test_every_reply_names_the_model_of_the_catalogue(
    gateway: Gateway, client: dict[str, Any]
) -> None:
    assert client["whole"]["model"] == gateway.model
    assert client["streamed"]["models"] == [gateway.model]


def test_a_stream_has_one_id_and_it_is_ours(client: dict[str, Any]) -> None:
    (generation,) = client["streamed"]["ids"]
    assert generation.startswith("gen-")


def test_the_reply_s_id_equals_the_generation_header(seen: dict[str, Any]) -> None:
    assert seen["sync"]["whole"]["id"] == seen["sync"]["generation_header"]


def test_a_model_can_be_looked_up(gateway: Gateway, seen: dict[str, Any]) -> None:
    model = seen["sync"]["model"]
    assert (model["id"], model["object"]) == (gateway.model, "model")
    assert model["owned_by"] == gateway.model.partition("/")[0]


def test_an_endpoint_that_is_not_offered_says_what_to_use(seen: dict[str, Any]) -> None:
    refused = seen["sync"]["no_files"]
    assert (refused["class"], refused["status"]) == ("NotFoundError", 404)
    assert "/v1/batches" in refused["body"]["message"]


def test_the_catalogue_can_be_listed(gateway: Gateway, seen: dict[str, Any]) -> None:
    assert gateway.model in seen["sync"]["models"]


def test_embeddings_of_nothing_are_a_bad_request(seen: dict[str, Any]) -> None:
    assert seen["sync"]["no_input"]["class"] == "BadRequestError"
