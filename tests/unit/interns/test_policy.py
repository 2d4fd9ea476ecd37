"""Names, models, keys and cursors of interns; who may ask for which."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tollhouse.identity.types import KeyKind, Subject
from tollhouse.interns import policy
from tollhouse.interns.policy import Cursor
from tollhouse.interns.types import CreateIntern, InternStatus
from tollhouse.kernel.errors import Invalid, NotFound, Unavailable, status_of

CALLER = Subject(
    key_hash="hash",
    kind=KeyKind.API,
    operator=False,
    account_id="account",
    workspace_id="11111111-0000-4000-8000-000000000001",
    creator_user_id=None,
    intern_id=None,
    label="label",
)
NEW = CreateIntern("ada")


@pytest.mark.parametrize("name", ["ab", "a1", "ada-lovelace", "a-b-c", "a" * 17])
def test_a_name_is_accepted(name: str) -> None:
    assert policy.check_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "a", "a" * 18, "1a", "-ab", "ab-", "a--b", "Ab", "a_b", "a b", "ab\n", "äb"],
)
def test_a_name_is_refused(name: str) -> None:
    with pytest.raises(Invalid, match="name: "):
        policy.check_name(name)


@pytest.mark.parametrize(
    "model", ["a/b", "openai/gpt-4o:free", "~x/y@z", "a" * 99 + "/" + "b" * 100]
)
def test_a_model_is_accepted(model: str) -> None:
    assert policy.check_model(model) == model


@pytest.mark.parametrize(
    "model", ["", "a", "a/", "/b", "a/b/c", "a b/c", "a/b\n", "a" * 200 + "/b"]
)
def test_a_model_is_refused(model: str) -> None:
    with pytest.raises(Invalid, match="model: "):
        policy.check_model(model)


@pytest.mark.parametrize("key", [None, "k", "k" * 255])
def test_an_idempotency_key_is_accepted(key: str | None) -> None:
    assert policy.check_idempotency_key(key) == key


@pytest.mark.parametrize("key", ["", "k" * 256])
def test_an_idempotency_key_is_refused(key: str) -> None:
    with pytest.raises(Invalid, match="Idempotency-Key"):
        policy.check_idempotency_key(key)


@pytest.mark.parametrize(
    "other",
    [
        replace(NEW, name="bob"),
        replace(NEW, description=""),
        replace(NEW, instructions="be kind"),
        replace(NEW, provision=True),
        replace(NEW, vault_id="vault"),
    ],
    ids=["name", "description", "instructions", "provision", "vault"],
)
def test_creations_that_differ_are_remembered_apart(other: CreateIntern) -> None:
    assert policy.request_digest(other) != policy.request_digest(NEW)


def test_a_key_that_was_sent_is_never_one_that_was_derived() -> None:
    digest = policy.request_digest(NEW)
    derived = policy.stored_key(None, digest)
    assert policy.stored_key(derived, digest) != derived
    assert policy.stored_key(digest, digest) != derived


def test_statuses_are_read_from_one_text() -> None:
    assert policy.parse_statuses("queued,running,queued") == {
        InternStatus.QUEUED,
        InternStatus.RUNNING,
    }
    assert policy.parse_statuses(None) == frozenset()


def test_the_status_that_published_clients_send_is_known() -> None:
    assert policy.parse_statuses("awaiting_slack_install") == {InternStatus.AWAITING_CHAT_INSTALL}


@pytest.mark.parametrize("text", ["", "on", "queued,", "queued, running", ",".join(["queued"] * 9)])
def test_other_statuses_are_refused(text: str) -> None:
    with pytest.raises(Invalid, match="status: "):
        policy.parse_statuses(text)


def test_a_cursor_comes_back_as_it_was() -> None:
    cursor = Cursor(datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC), "an-id")
    text = policy.encode_cursor(cursor)
    assert policy.decode_cursor(text) == cursor
    assert text.isascii()
    assert not set(text) & set("=+/|")


@pytest.mark.parametrize("text", ["", "x", "äöü", "AAAA", "MjAyNi0wMS0wMg", "MjAyNi0wMS0wMnxpZA"])
def test_a_cursor_of_somebody_else_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="starting_after: "):
        policy.decode_cursor(text)


def test_a_workspace_may_be_named_if_it_is_ones_own() -> None:
    policy.check_workspace(CALLER, None)
    policy.check_workspace(CALLER, CALLER.workspace_id.upper())
    with pytest.raises(NotFound):
        policy.check_workspace(CALLER, "22222222-0000-4000-8000-000000000002")


def test_a_token_that_only_an_operator_can_have_opened_is_a_500() -> None:
    refused = policy.token_not_opened(Unavailable("Another key.", metadata={"retryable": False}))
    assert (status_of(refused), refused.metadata["retryable"]) == (500, False)


@pytest.mark.parametrize(
    ("public_url", "origin", "hostname"),
    [
        (None, "http://gateway:8080", "gateway"),
        ("https://{intern}.interns.test", "https://one.interns.test", "one.interns.test"),
        ("http://{intern}.interns.test:81", "http://one.interns.test:81", "one.interns.test"),
    ],
)
def test_a_daemon_has_the_address_that_the_operator_gave_or_the_gateways_own(
    public_url: str | None, origin: str, hostname: str
) -> None:
    assert policy.daemon_origin(public_url, "http://gateway:8080", "one") == origin
    assert policy.daemon_hostname(public_url, "http://gateway:8080", "one") == hostname
