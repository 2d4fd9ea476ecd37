"""Halves of characters in JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.kernel.json_text import replace_lone_surrogates

any_text = st.text(st.characters(exclude_categories=()) | st.sampled_from('\ud83d\ude42\\"u'))


@pytest.mark.parametrize(
    ("given_", "mended"),
    [
        (rb'"a\ud83d"', rb'"a\ufffd"'),
        (rb'"\ude42a"', rb'"\ufffda"'),
        (rb'"\uD83D\uDE42"', rb'"\uD83D\uDE42"'),
        (rb'"\ude42\ud83d"', rb'"\ufffd\ufffd"'),
        (rb'"\ud83d\ud83d\ude42"', rb'"\ufffd\ud83d\ude42"'),
        (rb'"\\ud83d"', rb'"\\ud83d"'),
        (rb'"\\\ud83d"', rb'"\\\ufffd"'),
        (rb'"\ud83d\\ude42"', rb'"\ufffd\\ude42"'),
        (b'"\xf0\x9f\x99\x82"', b'"\xf0\x9f\x99\x82"'),
        (rb'"\ud8', rb'"\ud8'),
    ],
)
def test_halves_of_characters_are_replaced_and_nothing_else(given_: bytes, mended: bytes) -> None:
    assert replace_lone_surrogates(given_) == mended


@given(st.lists(any_text))
def test_what_is_left_is_text_of_the_same_length(texts: list[str]) -> None:
    data = json.dumps(texts).encode()
    mended = json.loads(replace_lone_surrogates(data))
    assert list(map(len, mended)) == list(map(len, json.loads(data)))
    "".join(mended).encode()


@given(st.lists(st.text()))
def test_text_without_halves_is_untouched(texts: list[str]) -> None:
    data = json.dumps(texts).encode()
    assert replace_lone_surrogates(data) is data
