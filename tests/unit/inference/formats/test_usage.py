"""The one reading of what a reply used: names, places, and what the numbers mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given as given_any
from hypothesis import strategies as st
from msgspec.structs import asdict

from tests.support.seams.formats import Counts, final, find_counts, later, read_counts, usage_of
from tests.support.seams.formats import raw as as_raw

CASES: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "usage.yaml").read_text())


def told(given: Any) -> Counts:
    return read_counts(as_raw(given))


def shown(counts: Counts, **how: bool) -> dict[str, int] | None:
    usage = usage_of(counts, **how)
    return None if usage is None else {name: n for name, n in asdict(usage).items() if n}


@pytest.mark.parametrize("name", CASES["counts"])
def test_counts_have_one_meaning_under_every_name(name: str) -> None:
    given, meant = CASES["counts"][name]
    assert shown(told(given)) == meant


@pytest.mark.parametrize("given", CASES["unusable"], ids=json.dumps)
def test_a_usage_that_cannot_be_meant_is_none(given: Any) -> None:
    assert shown(told(given)) is None


@pytest.mark.parametrize("name", CASES["places"])
def test_a_usage_is_found_in_every_place(name: str) -> None:
    given, meant = CASES["places"][name]
    assert shown(find_counts({name: as_raw(value) for name, value in given.items()})) == meant


@pytest.mark.parametrize("name", CASES["streams"])
def test_counts_of_a_stream_do_not_fall(name: str) -> None:
    *reports, meant = CASES["streams"][name]
    counts: Counts = {}
    for each in reports:
        counts = later(counts, told(each))
    assert shown(counts) == meant


@pytest.mark.parametrize("name", CASES["start and end"])
def test_zero_at_the_end_says_nothing_beside_a_positive_start(name: str) -> None:
    start, end, meant = CASES["start and end"][name]
    assert shown(final(told(start), told(end))) == meant


@pytest.mark.parametrize("given", [{"prompt_tokens": 8, "total_tokens": 8}, {"total_tokens": 8}])
def test_embeddings_need_no_output(given: Any) -> None:
    assert shown(told(given), with_output=False) == {"input_tokens": 8}


NUMBERS = st.one_of(
    st.integers(0, 99),
    st.sampled_from([2**31 - 1, 2**31, -1, 7.0, 7.5, "7", "", True, None, [], {}]),
)
OF_CHATS = dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), NUMBERS)
DETAILS = {
    "prompt_tokens_details": ("cached_tokens", "audio_tokens", "cache_write_tokens"),
    "completion_tokens_details": ("reasoning_tokens", "accepted_prediction_tokens"),
}
FURTHER = {
    name: NUMBERS | st.fixed_dictionaries({}, optional=dict.fromkeys(names, NUMBERS))
    for name, names in DETAILS.items()
}


@given_any(st.fixed_dictionaries(OF_CHATS, optional=FURTHER))
def test_a_usage_of_chats_counts_the_same_beside_an_unknown_field(given: dict[str, Any]) -> None:
    assert told(given) == told({**given, "unheard_of": 1})
