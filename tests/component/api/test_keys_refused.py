"""Bodies and queries of `/keys` that are refused, each with the path of the field."""

import pytest

from tests.component.api.conftest import INTERN_ID, Acme, message

WRONG_NEW = [
    ({}, "name: is required."),
    ({"name": ""}, "name: String should have at least 1 character."),
    ({"name": None}, "name: Input should be a valid string."),
    ({"name": 5}, "name: Input should be a valid string."),
    ({"name": "a\0b"}, "name: must not contain the character U+0000."),
    ({"name": "ci", "nmae": "x"}, "nmae: is not a known field."),
    ({"name": "ci", "kind": "root"}, "kind: Input should be 'api' or 'management'."),
    ({"name": "ci", "kind": "intern"}, "kind: Input should be 'api' or 'management'."),
    ({"name": "ci", "intern_id": INTERN_ID}, "intern_id: is not a known field."),
    ({"name": "ci", "operator": "yes"}, "operator: Input should be a valid boolean."),
    (
        {"name": "ci", "workspace_id": None},
        "workspace_id: may be left out, but must not be null.",
    ),
    (
        {"name": "ci", "workspace_id": "nowhere"},
        "workspace_id: no such workspace in this account.",
    ),
    (
        {"name": "ci", "creator_user_id": "nobody"},
        "creator_user_id: no such user in this account.",
    ),
    (
        {"name": "ci", "expires_at": "2026-03-12T10:30:00Z"},
        "expires_at: must lie in the future.",
    ),
]
NO_UTC_TIME = [
    "2030-01-01T00:00Z",
    "2030-01-01T00:00:00",
    "2030-01-01T00:00:00+02:00",
    "2030-13-01T00:00:00Z",
    "2030-01-01",
    "soon",
    1_900_000_000,
]
WRONG_CHANGE = [
    (
        {"include_byok_in_limit": None},
        "include_byok_in_limit: may be left out, but must not be null.",
    ),
    ({"name": None}, "name: may be left out, but must not be null."),
    ({"name": ""}, "name: String should have at least 1 character."),
    ({"disabled": None}, "disabled: may be left out, but must not be null."),
    ({"disabled": 1}, "disabled: Input should be a valid boolean."),
    ({"workspace_id": "nowhere"}, "workspace_id: no such workspace in this account."),
    ({"kind": "management"}, "kind: is not a known field."),
]
WRONG_QUERY = [
    ({"offset": -1}, "offset: Input should be greater than or equal to 0."),
    ({"offset": 2**31}, "offset: Input should be less than or equal to 2147483647."),
    ({"offset": "x"}, "offset: Input should be a valid integer, unable to parse"),
    ({"include_disabled": "maybe"}, "include_disabled: Input should be a valid boolean"),
    ({"workspace_id": ""}, "workspace_id: String should have at least 1 character."),
    ({"workspace_id": "\0"}, "workspace_id: must not contain the character U+0000."),
]


async def test_a_wrong_field_of_a_new_key(acme: Acme, subtests: pytest.Subtests) -> None:
    for body, text in WRONG_NEW:
        with subtests.test(body=body):
            assert message(await acme.management.post("/keys", json=body), 400) == text


async def test_an_expiry_that_is_no_time_in_utc(acme: Acme, subtests: pytest.Subtests) -> None:
    for sent in NO_UTC_TIME:
        with subtests.test(expires_at=sent):
            reply = await acme.management.post("/keys", json={"name": "ci", "expires_at": sent})
            assert message(reply, 400) == (
                "expires_at: must be an ISO 8601 time in UTC with seconds, "
                "such as 2030-01-31T12:00:00Z."
            )


async def test_an_identity_at_a_partner(acme: Acme) -> None:
    body = {"name": "ci", "external": {"user": "u"}}

    assert message(await acme.management.post("/keys", json=body), 400) == (
        "external: is not supported, so it cannot be set."
    )


async def test_a_wrong_field_of_a_change(acme: Acme, subtests: pytest.Subtests) -> None:
    path = f"/keys/{acme.api_key.key.hash}"
    for body, text in WRONG_CHANGE:
        with subtests.test(body=body):
            assert message(await acme.management.patch(path, json=body), 400) == text


async def test_a_wrong_query_of_the_list(acme: Acme, subtests: pytest.Subtests) -> None:
    for query, text in WRONG_QUERY:
        with subtests.test(query=query):
            reply = await acme.management.get("/keys", params=query)
            assert message(reply, 400).startswith(text)
