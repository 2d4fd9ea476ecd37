"""`/models`, `/model/{author}/{slug}` and `/providers`: readable without a key."""

from collections.abc import AsyncIterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import httpx2
import pytest

from tests.component.api.conftest import Client, message, shown
from tests.support.seams.accounting import FREE, Price, Rates, Tier
from tests.support.seams.api import control_app
from tests.support.seams.inference import Catalog, Endpoint, Model, endpoints


def rates(prompt: str) -> Rates:
    return Rates(
        prompt=Decimal(prompt),
        completion=Decimal("0.0000100"),
        cache_read=Decimal("1E-8"),
        cache_write=Decimal("0.00000125"),
        cache_write_1h=Decimal("0.000002"),
        request=Decimal("0.01"),
        image=Decimal("0.0050"),
        web_search=Decimal("0.010"),
    )


LARGE = Model(
    id="acme/large",
    name="Acme: Large",
    description="The large one.",
    context_length=128_000,
    max_completion_tokens=16_000,
    endpoints=(
        Endpoint("acme", "large-2026", Price(rates("1E-7"), (Tier(200_000, rates("2E-7")),))),
        Endpoint("backup", "large", FREE),
    ),
)
SMALL = Model("acme/small:free", "Small", "", 8_000, None, (Endpoint("acme", "small", FREE),))


async def client_of(*models: Model) -> AsyncIterator[Client]:
    control = control_app(
        endpoints.router(Catalog(models), {"acme": "Acme Inc", "backup": "Backup"})
    )
    transport = httpx2.ASGITransport(app=control)
    async with Client(transport=transport, base_url="http://gateway") as client:
        yield client


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async for each in client_of(LARGE, SMALL):
        yield each


@pytest.fixture
async def crowded() -> AsyncIterator[Client]:
    """A catalogue that is longer than the largest page."""
    models = (
        Model(f"acme/m{number}", "M", "", 1, None, LARGE.endpoints) for number in range(1_200)
    )
    async for each in client_of(*models):
        yield each


def ids(reply: httpx2.Response) -> list[str]:
    return [model["id"] for model in reply.json()["data"]]


class TestList:
    async def test_shows_every_field_of_a_model(self, client: Client) -> None:
        reply = await client.get("/models")

        assert reply.status_code == 200
        assert reply.json()["data"][0] == shown("model")

    async def test_shows_a_free_model_with_zeros(self, client: Client) -> None:
        model = (await client.get("/models")).json()["data"][1]

        assert model["pricing"] == shown("free_pricing")
        assert model["top_provider"]["max_completion_tokens"] is None

    async def test_shows_a_part_and_the_way_on(self, crowded: Client) -> None:
        reply = await crowded.get("/models", params={"offset": 3, "limit": 2})

        assert ids(reply) == ["acme/m3", "acme/m4"]
        assert reply.json()["total_count"] == 1_200
        assert reply.json()["links"] == {"next": "/v1/models?offset=5&limit=2"}

    async def test_refuses_a_wrong_part(self, client: Client) -> None:
        for query in ({"limit": 0}, {"limit": 1001}, {"limit": "all"}, {"offset": -1}):
            (name,) = query
            reply = await client.get("/models", params=query)
            assert message(reply, 400).startswith(f"{name}: ")


async def test_shows_one_model(client: Client) -> None:
    listed = (await client.get("/models")).json()["data"]

    assert (await client.get("/model/acme/large")).json() == {"data": listed[0]}
    assert (await client.get("/model/acme/small:free")).json() == {"data": listed[1]}


async def test_refuses_an_unknown_model_and_names_the_nearest(client: Client) -> None:
    for path in ("/model/acme/larg", "/models/acme/larg/endpoints"):
        assert message(await client.get(path), 404) == (
            "No model 'acme/larg' in the catalogue. Did you mean 'acme/large'?"
        )


async def test_lists_who_serves_a_model(client: Client) -> None:
    reply = await client.get("/models/acme/large/endpoints")

    data: dict[str, Any] = reply.json()["data"]
    offers = data.pop("endpoints")
    assert data == shown("model_with_endpoints")
    assert offers[0].pop("supported_parameters")
    assert offers[0] == shown("endpoint")
    assert (offers[1]["provider_name"], offers[1]["pricing"]) == ("Backup", shown("free_pricing"))


async def test_lists_the_providers(client: Client) -> None:
    reply = await client.get("/providers")

    nothing = {
        "privacy_policy_url": None,
        "terms_of_service_url": None,
        "status_page_url": None,
        "headquarters": None,
        "datacenters": None,
    }
    assert reply.json() == {
        "data": [
            {"name": "Acme Inc", "slug": "acme", **nothing},
            {"name": "Backup", "slug": "backup", **nothing},
        ]
    }


# In the shapes of other clients

ANTHROPICS = {"anthropic-version": "2023-06-01"}


async def test_a_model_is_shown_as_openai_does(client: Client) -> None:
    read = (await client.get("/models/acme/large")).json()
    openais = {name: read[name] for name in ("id", "object", "created", "owned_by")}
    assert openais == {"id": "acme/large", "object": "model", "created": 0, "owned_by": "acme"}
    listed = (await client.get("/models")).json()
    assert listed["object"] == "list"
    assert read == listed["data"][0]


@pytest.mark.parametrize("name", ["acme%2Flarge", "large", "gpt-4o"])
async def test_a_model_is_shown_by_whatever_name_it_can_be_asked_for(name: str) -> None:
    async for client in client_of(replace(LARGE, aliases=("gpt-4o",)), SMALL):
        read = (await client.get(f"/models/{name}")).json()
        assert (read["id"], read["aliases"]) == ("acme/large", ["gpt-4o"])


async def test_aliases_that_claude_code_looks_for_are_in_the_lists() -> None:
    names = ["acme/large", "claude-large", "acme/small:free"]
    async for client in client_of(replace(LARGE, aliases=("gpt-4o", "claude-large")), SMALL):
        openais = (await client.get("/models")).json()
        anthropics = (await client.get("/models?limit=1000", headers=ANTHROPICS)).json()
        for listed in (openais, anthropics):
            assert [each["id"] for each in listed["data"]] == names
        slugs = ["acme/large", "acme/large", "acme/small:free"]
        assert [each["canonical_slug"] for each in openais["data"]] == slugs
        assert (await client.get("/models/count")).json()["data"]["count"] == len(names)


async def test_a_model_that_is_not_there_is_a_404_in_each_shape(client: Client) -> None:
    openais = await client.get("/models/acme/larg")
    anthropics = await client.get("/models/acme/larg", headers=ANTHROPICS)
    assert (openais.status_code, anthropics.status_code) == (404, 404)
    assert openais.json()["error"]["code"] == 404
    assert anthropics.json()["type"] == "error"
    assert anthropics.json()["error"]["type"] == "not_found_error"


async def test_a_model_is_shown_as_anthropic_does(client: Client) -> None:
    read = (await client.get("/models/acme/large", headers=ANTHROPICS)).json()
    assert read == {
        "type": "model",
        "id": "acme/large",
        "display_name": "Acme: Large",
        "created_at": "1970-01-01T00:00:00Z",
        "lifecycle": "active",
        "max_input_tokens": 128_000,
        "max_tokens": 16_000,
    }


@pytest.mark.parametrize(
    ("query", "first", "last", "more"),
    [
        ({}, 0, 19, True),
        ({"limit": 1000}, 0, 999, True),
        ({"limit": 1000, "after_id": "acme/m999"}, 1000, 1199, False),
        ({"limit": 5, "after_id": "acme/m9"}, 10, 14, True),
        ({"limit": 5, "before_id": "acme/m9"}, 4, 8, True),
        ({"limit": 5, "before_id": "acme/m3"}, 0, 2, False),
    ],
)
async def test_models_are_listed_as_anthropic_does(
    crowded: Client, query: dict[str, Any], first: int, last: int, *, more: bool
) -> None:
    page = (await crowded.get("/models", params=query, headers=ANTHROPICS)).json()
    assert (page["first_id"], page["last_id"]) == (f"acme/m{first}", f"acme/m{last}")
    assert (len(page["data"]), page["has_more"]) == (last - first + 1, more)


async def test_behind_the_last_model_there_is_an_empty_list(client: Client) -> None:
    query = {"after_id": "acme/small:free"}
    page = (await client.get("/models", params=query, headers=ANTHROPICS)).json()
    assert page == {"data": [], "has_more": False, "first_id": None, "last_id": None}
