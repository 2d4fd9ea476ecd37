import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.inference.formats.event_template import EventTemplate

DATA = b'{"kind":"delta %","text": "Hi","more":{"n":1},"end":true}'


def template(data: bytes = DATA, **values: bytes) -> EventTemplate | None:
    return EventTemplate.of(data, {name: msgspec.Raw(value) for name, value in values.items()})


def test_the_values_of_a_like_event_are_found() -> None:
    made = template(text=b'"Hi"', n=b"1")
    assert made is not None
    like = b'{"kind":"delta %","text": [2],"more":{"n":{"n":3}},"end":true}'
    assert made.values(like) == [b"[2]", b'{"n":3}']
    assert made.fill([b"[2]", b'{"n":3}']) == like


@pytest.mark.parametrize(
    "other",
    [
        b'{"kind":"delta !","text": "Hi","more":{"n":1},"end":true}',
        b'{"kind":"delta %","text": "Hi","more":{"m":1},"end":true}',
        b'{"kind":"delta %","text": "Hi","more":{"n":1},"end":null}',
        b'{"kind":"delta %","text": "Hi","more":{"n":1}',
        b"",
    ],
)
def test_an_event_with_another_constant_is_another_one(other: bytes) -> None:
    made = template(text=b'"Hi"', n=b"1")
    assert made is not None
    assert made.values(other) is None


@pytest.mark.parametrize(
    "data",
    [
        b'{"text":"Hi","more":{"text":"Hi"}}',
        b'{"kind":"text","text":"Hi"}',
        b'{"text" : "Hi"}',
        b'{"text":  "Hi"}',
        b'{"te\\u0078t":"Hi"}',
        b'{"n":1,"text":"Hi"}',
    ],
)
def test_a_value_that_cannot_be_located_makes_no_template(data: bytes) -> None:
    assert template(data, text=b'"Hi"', n=b"1") is None


def test_an_event_without_any_of_the_values_makes_no_template() -> None:
    assert template() is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
).map(msgspec.json.encode)


@given(json_values, json_values)
def test_what_is_found_is_what_a_decoder_finds(text: bytes, more: bytes) -> None:
    made = template(text=b'"Hi"', n=b"1")
    assert made is not None
    data = made.fill([text, more])
    decoded = msgspec.json.decode(data)
    assert decoded == {
        "kind": "delta %",
        "text": msgspec.json.decode(text),
        "more": {"n": msgspec.json.decode(more)},
        "end": True,
    }
    found = made.values(data)
    # A value that repeats the constant behind it is cut there, and is no JSON.
    assert found == [text, more] or b'"more":{"n":' in text
