"""What a reply says that it costs, in every format on every dialect, whole and streamed.

It is what its tokens cost at the configured price, to the last digit, and what is booked.
"""

import json
from collections.abc import Generator
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import httpx2
import pytest

from tests.support.format_clients import (
    Chat,
    Completions,
    FormatClient,
    Messages,
    Responses,
    TextRequest,
)
from tests.support.server_process import ServerProcess, start_server
from tests.support.upstream_process import start_upstream

DIALECTS = ("chat", "responses", "messages")
FORMS = (Chat(), Responses(), Messages(), Completions())
PRICES = {
    "prompt": "0.000000123456789",
    "completion": "0.000000987654321",
    "reasoning": "0.000000555555555",
    "request": "0.000000000123456",
    "image": "0.0000000333",
}
EXACT = {name: Decimal(price) for name, price in PRICES.items()}
PARTS = (
    ("upstream_inference_prompt_cost", "upstream_inference_completions_cost"),
    ("upstream_inference_input_cost", "upstream_inference_output_cost"),
)
"""What formats call the two parts."""


def model(provider: str, name: str, **more: object) -> dict[str, Any]:
    endpoint = {"provider": provider, "model": name, "pricing": PRICES, **more}
    return {"id": f"{provider}/{name}", "context_length": 9_999, "endpoints": [endpoint]}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Generator[httpx2.Client]:
    with start_upstream() as upstream:
        url = f"{upstream.origin}/v1"
        openai = {"kind": "openai_compatible", "base_url": url}
        config = {
            "providers": [
                {"slug": "chat", "dialects": ["chat", "embeddings"], **openai},
                {"slug": "responses", "dialects": ["responses"], **openai},
                {"slug": "messages", "kind": "anthropic", "base_url": url, "api_key": "sk-ant-1"},
                {"slug": "own", "kind": "simulated"},
            ],
            "models": [
                *(model(dialect, "echo") for dialect in DIALECTS),
                model("chat", "embedding-2026"),
                model("own", "reasoning", dialects=["chat"]),
            ],
        }
        folder = tmp_path_factory.mktemp("costs")
        with start_server(folder, config=json.dumps(config)) as server:
            yield from _client(server)


def _client(server: ServerProcess) -> Generator[httpx2.Client]:
    headers = server.authorization
    with httpx2.Client(base_url=server.base_url, headers=headers, timeout=20) as client:
        yield client


def usage_of(body: bytes) -> dict[str, Any]:
    """Return the last usage of a reply: that of the whole, or of the events of a stream."""
    if body.startswith(b"{"):
        return json.loads(body)["usage"]
    lines = [line.removeprefix(b"data: ") for line in body.splitlines() if b"data: {" in line]
    events = [json.loads(line) for line in lines]
    found = [event.get("response", event).get("usage") for event in events]
    return [usage for usage in found if usage][-1]


def booked(client: httpx2.Client, reply: httpx2.Response) -> dict[str, Any]:
    generation = client.get("/generation", params={"id": reply.headers["X-Generation-Id"]})
    assert generation.status_code == 200, generation.text
    return generation.json()["data"]


def nano(amount: float) -> int:
    """Return an amount of the wire, which must be a whole number of nano-credits."""
    rounded = int((Decimal(repr(amount)) * 10**9).quantize(Decimal(1), ROUND_HALF_UP))
    assert rounded / 10**9 == amount
    return rounded


def check(client: httpx2.Client, reply: httpx2.Response, images: int) -> dict[str, Any]:
    """Assert that a reply says what is booked, and that this is what it costs."""
    assert reply.status_code == 200, reply.text
    usage, data = usage_of(reply.content), booked(client, reply)
    assert (data["cost_state"], data["num_media_prompt"]) == ("exact", images)
    exact = (
        data["tokens_prompt"] * EXACT["prompt"]
        + (data["tokens_completion"] - data["native_tokens_reasoning"]) * EXACT["completion"]
        + data["native_tokens_reasoning"] * EXACT["reasoning"]
        + EXACT["request"]
        + images * EXACT["image"]
    )
    due = int((exact * 10**9).quantize(Decimal(1), ROUND_HALF_UP))
    assert due > 0
    assert usage["cost"] == data["total_cost"] == data["usage"] == due / 10**9
    nano(usage["cost"])
    assert usage["is_byok"] is data["is_byok"] is False
    details = usage["cost_details"]
    [(first, second)] = [parts for parts in PARTS if parts[0] in details]
    assert nano(details[first]) + nano(details[second]) == due
    return data


def name(value: object) -> str:
    return type(value).__name__.lower()


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("form", FORMS, ids=name)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_reply_costs_what_is_booked(
    client: httpx2.Client, form: FormatClient, dialect: str, *, stream: bool
) -> None:
    pictures = not isinstance(form, Completions)
    body = form.fields(f"{dialect}/echo", TextRequest(image=pictures)) | {"stream": stream}
    check(client, client.post(form.path, json=body), images=int(pictures))


@pytest.mark.parametrize("form", FORMS[:3], ids=name)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_reasoning_is_charged_at_its_own_price(
    client: httpx2.Client, form: FormatClient, *, stream: bool
) -> None:
    body = form.fields("own/reasoning", TextRequest()) | {"stream": stream}
    data = check(client, client.post(form.path, json=body), images=0)
    assert data["native_tokens_reasoning"] > 0


def test_embeddings_cost_what_is_booked(client: httpx2.Client) -> None:
    body = {"model": "chat/embedding-2026", "input": ["one two", "three"]}
    check(client, client.post("/embeddings", json=body), images=0)
