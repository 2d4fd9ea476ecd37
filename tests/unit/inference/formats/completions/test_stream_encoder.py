"""Finish reasons of completions."""

import pytest

from tests.support.stream_checks.completions import check_stream
from tollhouse.inference.formats.canonical.translation import TranslationSource
from tollhouse.inference.formats.canonical.types import ChoiceFinished
from tollhouse.inference.formats.completions import (
    COMPLETIONS_CLIENT,
    CompletionsStreamEncoder,
    parse_request,
    render_choice,
)
from tollhouse.inference.types import ReplyIdentity
from tollhouse.kernel.errors import Unavailable

IDENTITY = ReplyIdentity("gen-1", "a/b", "a", 0)
SOURCE = TranslationSource(parse_request(b'{"model":"m","prompt":"hi"}'), COMPLETIONS_CLIENT)


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("tool_calls", "stop"),
    ],
)
def test_a_completion_has_a_finish_reason_of_its_format(reason: str, told: str) -> None:
    assert render_choice(0, "said", reason)["finish_reason"] == told


def test_a_completions_stream_has_a_finish_reason_of_its_format() -> None:
    encoder = CompletionsStreamEncoder(SOURCE, IDENTITY)
    stream = encoder.write(ChoiceFinished(0, "tool_calls")) + encoder.fail(Unavailable("gone"))
    assert check_stream(stream).choices[0]["finish_reason"] == "stop"
