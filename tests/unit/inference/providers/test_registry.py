import asyncio
from typing import Any

import pytest

from tests.support.seams.inference import (
    Dialect,
    Endpoint,
    ProviderCall,
    build_providers,
    dialects_named,
)
from tests.unit.inference.fake_upstream import FakeUpstream
from tests.unit.inference.fakes import PRICE
from tollhouse.kernel.errors import ProviderUnavailable
from tollhouse.outbound.http.port import ConnectFailed
from tollhouse.settings.sections import ProviderSettings, UpstreamSettings

LIMITS = UpstreamSettings()


def settings(slug: str, kind: str, **fields: Any) -> ProviderSettings:
    return ProviderSettings.model_validate({"slug": slug, "kind": kind} | fields)


def test_every_provider_is_found_by_its_slug_and_has_its_name() -> None:
    listed = [
        settings("a", "simulated", on_disconnect="drain"),
        settings("b", "anthropic", name="Anthropic"),
        settings("c", "openai_compatible", base_url="https://c.example/v1", name="C"),
    ]
    made: list[str] = []

    def transport(of: ProviderSettings, /) -> Any:
        made.append(of.slug)

    built = build_providers(listed, LIMITS, transport)
    assert {slug: each.name for slug, each in built.items()} == {
        "a": "a",
        "b": "Anthropic",
        "c": "C",
    }
    assert [each.on_disconnect for each in built.values()] == ["drain", "cancel", "cancel"]
    assert made == ["b", "c"]


def test_an_anthropic_provider_speaks_messages_with_its_own_credentials() -> None:
    upstream = FakeUpstream(ConnectFailed("nobody there", sent=False))
    given = settings("b", "anthropic", api_key="sk-ant-1")
    provider = build_providers([given], LIMITS, lambda _: upstream)["b"]  # type: ignore[arg-type]
    assert provider.dialects == {Dialect.MESSAGES, Dialect.COUNT_TOKENS}
    call = ProviderCall(
        Endpoint("b", "claude", PRICE),
        Dialect.MESSAGES,
        stream=False,
        body=b"{}",
        query="beta=true",
        headers=(("anthropic-version", "2099-01-01"),),
    )
    with pytest.raises(ProviderUnavailable):
        asyncio.run(provider.open(call))  # type: ignore[arg-type]
    [sent] = upstream.requests
    assert sent.url == "https://api.anthropic.com/v1/messages?beta=true"
    headers = list(sent.headers)
    assert ("x-api-key", "sk-ant-1") in headers
    assert [value for name, value in headers if name == "anthropic-version"] == ["2099-01-01"]


@pytest.mark.parametrize(
    ("fields", "dialects"),
    [
        ({"base_url": "https://api.openai.com/v1"}, {"chat", "responses", "embeddings"}),
        ({"base_url": "http://127.0.0.1:9/v1"}, {"chat", "embeddings"}),
        ({"base_url": "http://127.0.0.1:9/v1", "dialects": "messages"}, {"messages"}),
    ],
)
def test_a_server_speaks_what_is_known_or_said_of_it(
    fields: dict[str, str], dialects: set[str]
) -> None:
    given = settings("c", "openai_compatible", **fields)
    provider = build_providers([given], LIMITS, lambda _: None)["c"]  # type: ignore[arg-type,return-value]
    assert provider.dialects == dialects_named(dialects)
