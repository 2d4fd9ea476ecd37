"""The product of client formats and provider formats, and the URLs of their requests."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.support.seams.accounting import FREE
from tests.support.seams.inference import (
    FORMATS,
    MESSAGES_CLIENT,
    PROVIDER_FORMATS,
    Dialect,
    Endpoint,
    RequestBuilder,
    TranslatingAdapter,
    registry,
)

BODIES: Mapping[str, bytes] = {
    "/chat/completions": b'{"model":"m","messages":[{}]}',
    "/responses": b'{"model":"m","input":"hi"}',
    "/messages": b'{"model":"m","messages":[{}]}',
    "/completions": b'{"model":"m","prompt":"hi"}',
    "/embeddings": b'{"model":"m","input":"hi"}',
}
ENDPOINT = Endpoint("acme", "large-2026", FREE)
GEMINI = RequestBuilder("models/{model}:generate", "models/{model}:streamGenerate?alt=sse")


@pytest.mark.parametrize("path", FORMATS)
def test_own_dialect_comes_first_and_every_other_once(path: str) -> None:
    adapters = FORMATS[path].parse(BODIES[path], {}, b"")
    own, *others = adapters
    assert adapters.passthrough is adapters[own]
    assert [each.dialect for each in adapters.values()] == [own, *others]
    translated = [] if path == "/embeddings" else [d for d in PROVIDER_FORMATS if d is not own]
    assert others == translated


def test_adapters_are_built_when_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Dialect] = []

    class Counting(TranslatingAdapter):
        def __init__(self, source: Any, provider_format: Any) -> None:
            built.append(provider_format.dialect)
            super().__init__(source, provider_format)

    monkeypatch.setattr(registry, "TranslatingAdapter", Counting)
    adapters = FORMATS["/messages"].parse(BODIES["/messages"], {}, b"")
    assert (next(iter(adapters)), adapters.passthrough.dialect, built) == (
        *[Dialect.MESSAGES] * 2,
        [],
    )
    assert adapters[Dialect.CHAT] is adapters[Dialect.CHAT]
    assert built == [Dialect.CHAT]


def test_a_request_is_parsed_once_for_all_dialects_and_not_to_pass_it_through() -> None:
    parsed: list[Any] = []

    def counting(request: Any) -> Any:
        parsed.append(request)
        return MESSAGES_CLIENT.parse_request(request)

    api_format = FORMATS["/messages"]
    counted = replace(api_format, client_format=replace(MESSAGES_CLIENT, parse_request=counting))
    body = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
    adapters = counted.parse(body, {}, b"")
    adapters.passthrough.render_request(ENDPOINT)
    assert parsed == []
    for dialect in adapters:
        adapters[dialect].render_request(ENDPOINT)
        adapters[dialect].unsupported_parameters(ENDPOINT)
    assert parsed == [adapters.request]


def test_the_query_and_the_headers_of_anthropics_clients_are_forwarded() -> None:
    headers = {b"anthropic-beta": b"a,b", b"x-other": b"c"}
    adapter = FORMATS["/messages"].parse(BODIES["/messages"], headers, b"beta=true").passthrough
    assert (adapter.query, adapter.headers) == ("beta=true", (("anthropic-beta", "a,b"),))


def test_a_dialect_without_a_translation_has_no_adapter() -> None:
    adapters = FORMATS["/embeddings"].parse(BODIES["/embeddings"], {}, b"")
    with pytest.raises(KeyError):
        adapters[Dialect.CHAT]


@pytest.mark.parametrize(
    ("stream", "query", "url"),
    [
        (False, "", "models/a%2Fb:generate"),
        (False, "beta=true", "models/a%2Fb:generate?beta=true"),
        (True, "", "models/a%2Fb:streamGenerate?alt=sse"),
        (True, "beta=true", "models/a%2Fb:streamGenerate?alt=sse&beta=true"),
    ],
)
def test_a_url_can_hold_the_model(stream: bool, query: str, url: str) -> None:  # noqa: FBT001
    assert GEMINI.url("https://h/v1", "a/b", stream=stream, query=query) == f"https://h/v1/{url}"


def test_a_url_without_a_model_is_the_same_for_every_model() -> None:
    for stream in (False, True):
        url = Dialect.CHAT.builder.url("https://h/v1", "{model}", stream=stream)
        assert url == "https://h/v1/chat/completions"
