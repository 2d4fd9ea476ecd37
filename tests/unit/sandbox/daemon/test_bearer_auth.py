"""Which header shows the token."""

from __future__ import annotations

import hashlib

import pytest

from tollhouse.sandbox.daemon.app import bearer_token, token_matches


@pytest.mark.parametrize("value", [b"Bearer abc", b"bearer abc", b"BEARER  abc "])
def test_the_scheme_may_be_written_in_any_case(value: bytes) -> None:
    assert bearer_token([(b"authorization", value)]) == b"abc"


@pytest.mark.parametrize("value", [b"", b"Bearer", b"Bearer ", b"Basic abc", b"abc", b"Bearerabc"])
def test_what_shows_no_bearer_token_shows_none(value: bytes) -> None:
    assert bearer_token([(b"authorization", value)]) is None


def test_two_headers_show_none() -> None:
    assert bearer_token([(b"authorization", b"Bearer a"), (b"authorization", b"Bearer b")]) is None


def test_a_token_matches_its_own_digest_alone() -> None:
    digest = hashlib.sha256(b"abc").hexdigest()
    assert token_matches(b"abc", digest)
    assert not token_matches(b"abd", digest)
    assert not token_matches(b"", digest)
