"""JSON is mended only where the decoder refuses it: that must give what mending all of it gives."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.seams.accounting import Attribution
from tests.support.seams.inference import (
    FORMATS,
    InferenceRequest,
    decode_mended,
    fields_decoder,
    parse,
    replace_invalid_text,
)
from tests.unit.inference.fakes import START, SUBJECT
from tollhouse.kernel.clock import Now
from tollhouse.kernel.errors import Invalid
from tollhouse.kernel.json_text import (
    escape_controls,
    replace_lone_surrogates,
    replace_numbers_that_are_none,
)

typed = msgspec.json.Decoder(msgspec.defstruct("Typed", [("a", str | None, None)]))
odd = st.sampled_from(
    [
        *[b"\\ud83d", b"\\ude42", b"\\ud83d\\ude42", b"\\\\ud83d", b"NaN", b"-Infinity", b'"NaN"'],
        *[b"\n", b"\t", b"\0", b"\x1f", b"\xff", b"\xed\xa0\xbd", "\u00e9".encode(), b'\\"', b'"'],
        *[b",", b" ", b"1"],
    ]
)
names = st.sampled_from([b"a", b"b", b"\\ud83d", b"\xff", b"NaN"])


@st.composite
def objects(draw: st.DrawFn) -> bytes:
    """Return an object whose values may be what decoders refuse, perhaps with more around it."""
    said = [b"".join(part) for part in draw(st.lists(st.lists(odd, max_size=4), max_size=3))]
    quoted = draw(st.lists(st.booleans(), min_size=3, max_size=3))
    fields = [
        b'"%b":%b' % (draw(names), b'"%b"' % each if quote else each)
        for each, quote in zip(said, quoted, strict=False)
    ]
    around = st.sampled_from([b"", b"", b"", b"\xef\xbb\xbf", b"\0", b"\n", b"\xff"])
    return draw(around) + b"{" + b",".join(fields) + b"}" + draw(around)


def mended(data: bytes) -> bytes:
    """Return JSON after all that can be mended in it."""
    data = escape_controls(data.removeprefix(b"\xef\xbb\xbf"))
    data = replace_numbers_that_are_none(replace_lone_surrogates(data))
    return data.decode("utf-8", "replace").encode()


@given(objects())
def test_what_the_decoder_takes_needs_no_mending(data: bytes) -> None:
    assert replace_invalid_text(data) == mended(data)


def read(decoder: msgspec.json.Decoder[object], data: bytes, *, at_once: bool) -> object:
    try:
        if at_once:
            return decode_mended(decoder, data)
        return decoder.decode(mended(data))
    except msgspec.DecodeError as error:
        return type(error)


@given(objects(), st.sampled_from([fields_decoder, typed]))
def test_a_reply_is_read_as_if_it_were_mended_first(
    data: bytes, decoder: msgspec.json.Decoder[object]
) -> None:
    assert read(decoder, data, at_once=True) == read(decoder, data, at_once=False)


HALF = rb'"one \ud83d half, \\ud83d is none"'
MENDED = rb'"one \ufffd half, \\ud83d is none"'


def parsed(form: str, body: bytes) -> InferenceRequest:
    now = Now(START, 0.0)
    request = InferenceRequest(FORMATS[form], body, {}, b"", SUBJECT, Attribution(), now)
    parse(request)
    return request


@pytest.mark.parametrize("form", FORMATS)
def test_a_request_with_a_half_of_a_character_is_read_as_a_mended_one(form: str) -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":%b}],"max_tokens":9,"user":%b'
    body += b',"prompt":%b,"input":%b}'
    request, mended = (parsed(form, body % ((text,) * 4)) for text in (HALF, MENDED))
    assert request.body == mended.body
    assert request.parsed.fields == mended.parsed.fields
    assert request.attribution == mended.attribution
    assert request.attribution.external_user == "one \ufffd half, \\ud83d is none"


def test_a_request_that_mending_does_not_help_is_refused_as_the_mended_one() -> None:
    messages: list[str] = []
    for text in (HALF, MENDED):
        with pytest.raises(Invalid) as refused:
            parsed("/chat/completions", b'{"model":"m","messages":%b}' % text)
        messages.append(refused.value.message)
    assert messages == ["messages: must be a list of messages."] * 2
