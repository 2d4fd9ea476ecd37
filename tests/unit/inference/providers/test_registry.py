from typing import Any

import pytest

from tests.unit.inference.fakes import PRICE
from tollhouse.inference.providers.base import ProviderCall
from tollhouse.inference.providers.registry import build_providers
from tollhouse.inference.types import Dialect, Endpoint
from tollhouse.kernel.envelope import status_of
from tollhouse.kernel.errors import ProviderOverloaded
from tollhouse.settings.sections import ProviderSettings, UpstreamSettings

LIMITS = UpstreamSettings()


def no_transport(settings: ProviderSettings, /) -> Any:
    raise AssertionError(settings.slug)


def settings(slug: str, kind: str, **fields: Any) -> ProviderSettings:
    return ProviderSettings.model_validate({"slug": slug, "kind": kind} | fields)


def test_without_settings_the_simulated_provider_is_there() -> None:
    built = build_providers([], LIMITS, no_transport)
    assert [(slug, each.name) for slug, each in built.items()] == [("simulated", "Simulated")]


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
    assert made == ["c"]


async def test_a_provider_that_cannot_be_called_yet_answers_503() -> None:
    [provider] = build_providers([settings("b", "anthropic")], LIMITS, no_transport).values()
    call = ProviderCall(Endpoint("b", "claude", PRICE), Dialect.CHAT, stream=False, body=b"{}")
    with pytest.raises(ProviderOverloaded) as caught:
        await provider.open(call)
    assert status_of(caught.value) == 503
    assert caught.value.retry_after is None
    await provider.close()
