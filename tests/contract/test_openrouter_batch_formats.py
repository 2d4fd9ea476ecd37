"""Batches of every endpoint on a provider of every dialect, read by `openrouter`, 1.3.84.

What a result holds is one of four classes of the library; a body that fits none of them makes it
refuse the whole batch.
"""

import json
from itertools import product
from typing import Any

import pytest

from tests.contract.clients import conversations as told
from tests.contract.format_matrix import FormatMatrix
from tests.support.client_process import CLIENTS, run_client

pytestmark = pytest.mark.contract

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
EMBEDDINGS = "/v1/embeddings"
CLASSES = {
    CHAT: "BodyChatCompletion",
    RESPONSES: "OpenResponsesResult",
    MESSAGES: "BodyMessage",
    EMBEDDINGS: "BodyList",
}
DIALECTS = ("chat", "responses", "messages")
FEATURES = {"tools": "two-tools", "refusal": "refusal"}
"""What is shown of each dialect's stand-in beside its reasoning, and by which behaviour."""
Cell = tuple[str, str, str]
"""Endpoint, model, feature."""


def models(dialect: str) -> dict[str, str]:
    behaviours = FEATURES | {"reasoning": told.REASONING[dialect]}
    return {feature: f"{dialect}/{behaviour}" for feature, behaviour in behaviours.items()}


CELLS: list[Cell] = [
    *(
        (endpoint, model, feature)
        for endpoint, dialect in product((CHAT, RESPONSES, MESSAGES), DIALECTS)
        for feature, model in models(dialect).items()
    ),
    (EMBEDDINGS, "embeddings/embedding-2026", "vectors"),
    *((endpoint, "simulated/echo", "text") for endpoint in (CHAT, RESPONSES, MESSAGES)),
    (EMBEDDINGS, "simulated/embedding", "vectors"),
]
OF_A_FEATURE = {
    "text": {"text": told.TEXT},
    "tools": {"calls": [[0, "weather"], [1, "time"]]},
    "reasoning": {"text": told.TEXT, "thought": True},
    "refusal": {"refusal": True},
}
BARE: dict[str, Any] = {"text": "", "calls": [], "thought": False, "refusal": False}


@pytest.fixture(scope="module")
def seen(formats: FormatMatrix) -> dict[str, Any]:
    env = {
        "PYTHONPATH": str(CLIENTS),
        "CELLS": json.dumps(CELLS),
        "BASE_URL": formats.server.base_url,
        "API_KEY": formats.server.api_key,
    }
    return run_client("openrouter", "check_batch_formats.py", env=env, timeout=90)


every_cell = pytest.mark.parametrize(
    "cell", [pytest.param(cell, id="-".join(cell)) for cell in CELLS]
)


@every_cell
def test_a_reply_is_of_its_endpoint_s_class_and_says_what_was_said(
    seen: dict[str, Any], cell: Cell
) -> None:
    endpoint, _, feature = cell
    batch = seen[" ".join(cell)]
    item = batch["items"]["item-0"]
    assert (item["class"], item["status"], item["error"]) == (CLASSES[endpoint], 200, None)
    assert item["named alike"]
    if feature == "vectors":
        assert (item["indexes"], item["filled"], item["tokens"]) == ([0, 1], True, [3, 0])
    else:
        assert said_in(item) == BARE | OF_A_FEATURE[feature]


def said_in(item: dict[str, Any]) -> dict[str, Any]:
    """Return what an item says; a refusal is one wherever its format has a place for it."""
    refuses = item["refusal"] is not None or item["end"] in {"refusal", "content_filter"}
    refuses = refuses or item["end"] == "incomplete"
    return {
        "text": "" if refuses else item["text"],
        "calls": [call[:2] for call in item["calls"]],
        "thought": item["thought"] != "",
        "refusal": refuses,
    }


@every_cell
def test_a_request_that_is_wrong_has_an_error_that_names_the_field(
    seen: dict[str, Any], cell: Cell
) -> None:
    batch = seen[" ".join(cell)]
    item = batch["items"]["item-1"]
    field = "messages" if cell[0] in {CHAT, MESSAGES} else "input"
    error = item["error"]
    assert item["class"] is None
    assert (error["type"], error["param"]) == ("invalid_request_error", field)
    assert error["error_type"] == "invalid_request"
    assert error["message"].startswith(f"{field}: ")
    assert (batch["status"], batch["message"]) == ("completed", None)
    assert batch["counts"] == {"total": 2, "completed": 1, "failed": 1}
