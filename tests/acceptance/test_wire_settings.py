"""What settings say of a provider holds for every format, and what a stream begins with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.wire import FORMATS, events, said, told
from tests.support.scripted_providers import reply, stream

if TYPE_CHECKING:
    from tests.acceptance.wire import Wire

LIMITS = {
    "/chat/completions": "max_tokens",
    "/responses": "max_output_tokens",
    "/messages": "max_tokens",
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(("model", "provider"), [("refusing", "refusing"), ("renaming", "chat")])
def test_what_is_refused_is_not_sent_and_the_limit_has_its_other_name(
    wire: Wire, model: str, provider: str, form: str
) -> None:
    fields: dict[str, Any] = {LIMITS[form]: 77, "temperature": 0.5, "stream": True}
    wire.providers.say(provider, stream(*told("chat", "yes")))
    assert wire.ask(f"t/{model}", form, **fields).status_code == 200
    [asked] = wire.providers.asked(provider)
    assert asked.keys() == {"model", "messages", "stream", "max_completion_tokens"}
    assert asked["max_completion_tokens"] == 77


def test_the_limit_that_a_client_names_as_the_provider_does_stays(wire: Wire) -> None:
    wire.providers.say("refusing", reply(said("chat", "yes")))
    assert wire.ask("t/refusing", max_completion_tokens=9, max_tokens=7).status_code == 200
    assert wire.providers.asked("refusing")[0]["max_completion_tokens"] == 9


def test_an_effort_of_a_chat_reaches_an_unknown_server_as_that_of_responses_does(
    wire: Wire,
) -> None:
    for form in ("/chat/completions", "/responses"):
        wire.providers.say("chat", reply(said("chat", "yes")))
        assert wire.ask("t/chat", form, reasoning={"effort": "high"}).status_code == 200
        [asked] = wire.providers.asked("chat")
        assert asked["reasoning_effort"] == "high"
        assert "reasoning" not in asked


@pytest.mark.parametrize("dialect", ["chat", "responses", "messages"])
def test_a_stream_of_messages_begins_with_an_estimate_of_its_input(
    wire: Wire, dialect: str
) -> None:
    answer = told(dialect, "yes")
    if dialect == "messages":  # a server that counts at the end
        answer[0]["message"] |= {"usage": {"input_tokens": 0, "output_tokens": 0}}
        answer[-2]["usage"] |= {"input_tokens": 7}
    wire.providers.say(dialect, stream(*answer))
    image = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgoA" * 20_000}
    content: list[Any] = [
        {"type": "text", "text": "a word " * 100},
        {"type": "image", "source": image},
    ]
    shown = events(
        wire.ask(
            f"t/{dialect}",
            "/messages",
            stream=True,
            messages=[{"role": "user", "content": content}],
        )
    )
    assert 100 < shown[0]["message"]["usage"]["input_tokens"] < 5_000
    assert shown[-2]["usage"]["input_tokens"] == 7
