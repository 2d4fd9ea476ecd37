"""The product of client formats and provider formats, and the URLs of their requests."""

from collections.abc import Mapping

import pytest

from tests.support.seams.accounting import FREE
from tests.support.seams.inference import (
    FORMATS,
    PROVIDER_FORMATS,
    Dialect,
    Endpoint,
    RequestBuilder,
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
