"""A prompt that is longer than its model's context, in the words of each format."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.seams.inference import FORMATS, failure, parse_request
from tests.support.stream_checks import responses as responses_stream_checks
from tests.unit.inference import replies
from tests.unit.inference.fakes import FakeReply, parsed_request, received
from tests.unit.inference.generation.pipeline_fixtures import make_pipeline
from tollhouse.kernel.errors import ProviderRefused

if TYPE_CHECKING:
    from tests.support.seams.inference import ReplyBuffer
    from tests.unit.inference.fakes import PipelineFixture

WORDS = "prompt is too long: 9 tokens > 8 maximum"
REFUSED = failure("Acme", 400, message="maximum context length is 8 tokens, you requested 9")
IN_STREAM = replies.event({"error": {"code": "context_length_exceeded", "message": WORDS}})


def ask_responses(w: PipelineFixture, *, stream: bool) -> ReplyBuffer:
    body = {"model": "acme/large", "input": "hi", "stream": stream}
    adapters = FORMATS["/responses"].parse(json.dumps(body).encode(), {}, b"")
    chat = parsed_request(parse_request(b'{"model":"acme/large","messages":[{}]}'))
    chat.parsed, chat.adapters = adapters.request, adapters
    return w.pipeline.begin(chat)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_is_refused_in_words_that_clients_look_for(stream: bool) -> None:  # noqa: FBT001
    with pytest.raises(ProviderRefused) as refused:
        await received(make_pipeline(REFUSED).begin(stream=stream))
    assert refused.value.message.startswith(WORDS)


async def test_a_chat_that_streams_says_them_as_well() -> None:
    w = make_pipeline(FakeReply([replies.chunk(replies.ROLE), IN_STREAM]))
    assert WORDS in (await received(w.begin(stream=True))).decode()


async def test_a_whole_response_is_refused() -> None:
    with pytest.raises(ProviderRefused):
        await received(ask_responses(make_pipeline(REFUSED), stream=False))


@pytest.mark.parametrize("reply", [REFUSED, FakeReply([IN_STREAM])])
async def test_a_streamed_response_has_failed_with_openais_code(reply: Any) -> None:
    """Codex looks for it there alone, also where the provider refused before it streamed."""
    told = responses_stream_checks.check_stream(
        await received(ask_responses(make_pipeline(reply), stream=True))
    )
    assert told.response["error"]["code"] == "context_length_exceeded"
    assert told.response["error"]["message"].startswith(WORDS)
