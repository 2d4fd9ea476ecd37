"""What the daemon reads: its settings, paths, numbers, tokens and answers."""

import hashlib
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tables import tables
from tollhouse.sandbox.daemon.app import bearer_token, token_matches
from tollhouse.sandbox.daemon.files import parse_range
from tollhouse.sandbox.daemon.http import RequestError, read_number, read_path
from tollhouse.sandbox.daemon.sessions.approvals import InvalidAnswer, read_answer
from tollhouse.sandbox.daemon.sessions.endpoints import read_answer_request, read_run_request
from tollhouse.sandbox.daemon.settings import InvalidSettings, read_settings

CASES = tables(__file__)

LEAST = {"listener": 3, "token_sha256": "0" * 64, "workspace": "/workspace"}


def line(**fields: object) -> bytes:
    return json.dumps({**LEAST, **fields}).encode()


def test_what_need_not_be_said_has_a_default() -> None:
    settings = read_settings(line())
    assert settings.egress_socket is None
    assert settings.egress_port == 3128
    assert settings.largest_file_bytes == 4 << 30
    assert settings.environment == {}


def test_everything_can_be_said() -> None:
    settings = read_settings(
        line(
            egress_socket="/run/egress/proxy.sock",
            egress_port=4000,
            environment={"A": "b"},
            intern={"id": "1", "name": "ada"},
            largest_file_bytes=5,
            agent={"model": "a/b", "base_url": "http://a/", "idle_seconds": 0.5},
        )
    )
    assert settings.egress_socket == "/run/egress/proxy.sock"
    assert settings.egress_port == 4000
    assert settings.environment == {"A": "b"}
    assert (settings.intern_id, settings.intern_name) == ("1", "ada")
    assert settings.largest_file_bytes == 5
    assert settings.agent is not None
    assert (settings.agent.model, settings.agent.base_url) == ("a/b", "http://a/")
    assert (settings.agent.idle_seconds, settings.agent.interaction_seconds) == (0.5, 300)


@pytest.mark.parametrize("fields", CASES["what_is_wrong_is_refused"], ids=str)
def test_what_is_wrong_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidSettings):
        read_settings(line(**fields))


def test_what_is_refused_is_not_repeated() -> None:
    with pytest.raises(InvalidSettings) as refused:
        read_settings(line(token_sha256="canary", environment={"canary": 1}))
    assert "canary" not in str(refused.value)


def test_secrets_are_not_shown() -> None:
    agent = {"model": "a/b", "base_url": "http://a/", "instructions": "canary"}
    settings = read_settings(line(environment={"A": "canary"}, agent=agent))
    assert "canary" not in repr(settings)
    run = read_run_request(b'{"input": "canary"}')
    answer = read_answer_request(b'{"interaction": "i", "answer": "canary"}')
    assert "canary" not in repr((run, answer))
    assert "0000" not in repr(settings)


# Which paths name something in the workspace, and which part of a file is meant


NAMES = st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1)


@pytest.mark.parametrize(
    "raw", [b"/..", b"/a/../b", b"/%2e%2E", b"/a/.", b"//a", b"/a//b", b"/a//", b"/%00", b"/%c3"]
)
def test_what_names_nothing_is_refused(raw: bytes) -> None:
    with pytest.raises(RequestError):
        read_path(raw)


@given(st.lists(NAMES.filter(lambda name: name not in {".", ".."}), max_size=4))
def test_names_are_read_as_they_were_escaped(names: list[str]) -> None:
    raw = "".join(f"/{quote(name, safe='')}" for name in names)
    assert read_path(raw.encode()) == tuple(names)


@given(st.binary())
def test_any_path_is_read_or_refused(raw: bytes) -> None:
    try:
        names = read_path(raw)
    except RequestError:
        return
    assert not {"", ".", ".."} & set(names)
    assert not any("/" in name or "\0" in name for name in names)


@pytest.mark.parametrize(
    "text",
    ["", "0", "-1", "+1", " 1", "1.0", "101", "²", "٣", "0" * 20 + "9" * 30, "1" * 5000],
    ids=lambda text: text[:10],
)
def test_what_is_no_number_or_none_that_may_be_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="from 1 to 100"):
        read_number(text, "limit", default=5, largest=100)


@given(st.integers(0, 50), st.integers(0, 60), st.integers(0, 60))
def test_a_part_is_what_a_slice_of_the_file_is(size: int, first: int, last: int) -> None:
    data = bytes(range(size))
    try:
        part = parse_range(f"bytes={first}-{last}", size)
    except RequestError:
        assert data[first : last + 1] == b""
        return
    if part is None:
        assert last < first
    else:
        assert data[part.start : part.stop] == data[first : last + 1] != b""


# Which header shows the token


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


# Answers, as the agent and the rest of the session get them


OPTIONS = ["allow_once", "allow_always", "reject_once"]
PERMISSION = {
    "call": "c",
    "permission": {"scope": "shell", "operation": "curl", "options": OPTIONS},
}
FIELDS = [
    {"name": "flag", "type": "boolean", "required": True},
    {"name": "count", "type": "integer", "required": False},
    {"name": "size", "type": "number", "required": False},
    {"name": "kind", "type": "string", "required": False, "options": ["a", "b"]},
]
ELICITATION = {"call": "c", "elicitation": {"message": "Which?", "fields": FIELDS}}


def accepted(**content: object) -> str:
    return json.dumps({"action": "accept", "content": content})


@pytest.mark.parametrize(("option", "verdict"), CASES["a_permission_is_given_or_not"])
def test_a_permission_is_given_or_not(option: str, verdict: list[str] | None) -> None:
    answer = read_answer(PERMISSION, option)
    assert answer.order == {"permission": "allow" in option}
    assert answer.verdict == (verdict and tuple(verdict))
    assert answer.outcome == option.strip()


@pytest.mark.parametrize(
    "option", ["reject_always", "allow", "accept", "", "{}", "Allow_once", "allow_once reject_once"]
)
def test_an_option_that_was_not_offered_is_refused(option: str) -> None:
    with pytest.raises(InvalidAnswer, match="allow_once"):
        read_answer(PERMISSION, option)


@pytest.mark.parametrize(("content", "fits"), CASES["content_that_fits_is_taken"], ids=str)
def test_content_that_fits_is_taken(content: dict[str, object], *, fits: bool) -> None:
    if fits:
        assert read_answer(ELICITATION, accepted(**content)).order == {"content": content}
    else:
        with pytest.raises(InvalidAnswer):
            read_answer(ELICITATION, accepted(**content))


@pytest.mark.parametrize(("answer", "why"), CASES["what_is_no_answer_to_a_form_is_refused"])
def test_what_is_no_answer_to_a_form_is_refused(answer: str, why: str | None) -> None:
    with pytest.raises(InvalidAnswer, match=why):
        read_answer(ELICITATION, answer)
