"""What is sent to the control plane and refused, each with the path of the field."""

from itertools import product
from typing import Any

import pytest
import sqlalchemy as sa

from tests.component.api.conftest import INTERN_ID, Acme, message
from tollhouse.kernel.money import MAX_NANO, format_credits
from tollhouse.storage.database import Database
from tollhouse.storage.tables.accounting import limits

Rows = list[tuple[dict[str, Any], str]]

ANN = {"name": "Ann", "email": "ann@acme.example"}
LAB = {"name": "Lab", "slug": "lab"}
NULL = "may be left out, but must not be null."
WRONG_NAMES: Rows = [
    ({"name": ""}, "name: String should have at least 1 character."),
    ({"name": "x" * 101}, "name: String should have at most 100 characters."),
    ({"name": "a\0"}, "name: must not contain the character U+0000."),
]
NO_NAME = ({"name": None}, "name: Input should be a valid string.")
NULL_NAME = ({"name": None}, f"name: {NULL}")
OF_ACCOUNTS: Rows = [
    *WRONG_NAMES,
    ({"name": "A", "plan": "big"}, "plan: is not a known field."),
    (
        {"name": "A", "type": "gold"},
        "type: Input should be 'prepaid', 'enterprise', 'subscription' or 'invoice'.",
    ),
    (
        {"name": "A", "free_limits_exempt": 1},
        "free_limits_exempt: Input should be a valid boolean.",
    ),
]
OF_USERS: Rows = [
    *WRONG_NAMES,
    ({"email": "nowhere"}, "email: String should match pattern"),
    ({"email": ""}, "email: String should match pattern"),
    ({"email": "a@" + "x" * 319}, "email: String should have at most 320 characters."),
    ({"role": "admin"}, "role: is not a known field."),
]
OF_WORKSPACES: Rows = [
    *WRONG_NAMES[:2],
    ({"name": None}, "name: "),
    ({"slug": ""}, "slug: String should have at least 1 character."),
    ({"slug": "x" * 51}, "slug: String should have at most 50 characters."),
    *(
        ({"slug": slug}, "slug: String should match pattern")
        for slug in ("No", "a--b", "-a", "a\n")
    ),
    ({"description": "x" * 501}, "description: String should have at most 500 characters."),
    ({"description": "\0"}, "description: must not contain the character U+0000."),
    ({"default_provider_sort": "mood"}, "default_provider_sort: Input should be 'price', "),
    ({"io_logging_sampling_rate": 0}, "io_logging_sampling_rate: Input should be greater than"),
    ({"io_logging_sampling_rate": 1.01}, "io_logging_sampling_rate: Input should be less than"),
    ({"io_logging_sampling_rate": None}, "io_logging_sampling_rate: may be left out, but must"),
    ({"io_logging_api_key_ids": ["a"]}, "io_logging_api_key_ids.0: Input should be a valid int"),
    ({"disabled_server_tools": "all"}, "disabled_server_tools: Input should be a valid list."),
    ({"is_observability_io_logging_enabled": "on"}, "is_observability_io_logging_enabled: Input"),
    ({"is_observability_broadcast_enabled": None}, "is_observability_broadcast_enabled: may be"),
    ({"include_byok_in_budgets": True}, "include_byok_in_budgets: is not a known field."),
    ({"id": "x"}, "id: is not a known field."),
]
NO_UTC_TIME = (
    "expires_at: must be an ISO 8601 time in UTC with seconds, such as 2030-01-31T12:00:00Z."
)
OF_LIMITS: Rows = [
    ({"limit_reset": "yearly"}, "limit_reset: Input should be 'daily', 'weekly' or 'monthly'."),
    ({"limit_reset": 1}, "limit_reset: Input should be 'daily', 'weekly' or 'monthly'."),
    ({"include_byok_in_limit": 1}, "include_byok_in_limit: Input should be a valid boolean."),
]
OF_NEW_KEYS: Rows = [
    WRONG_NAMES[0],
    NO_NAME,
    ({"name": 5}, "name: Input should be a valid string."),
    ({"name": "a\0b"}, "name: must not contain the character U+0000."),
    ({"nmae": "x"}, "nmae: is not a known field."),
    ({"kind": "root"}, "kind: Input should be 'api' or 'management'."),
    ({"kind": "intern"}, "kind: Input should be 'api' or 'management'."),
    ({"intern_id": INTERN_ID}, "intern_id: is not a known field."),
    ({"operator": "yes"}, "operator: Input should be a valid boolean."),
    ({"workspace_id": None}, f"workspace_id: {NULL}"),
    ({"workspace_id": "nowhere"}, "workspace_id: no such workspace in this account."),
    ({"creator_user_id": "nobody"}, "creator_user_id: no such user in this account."),
    ({"external": {"user": "u"}}, "external: is not supported, so it cannot be set."),
    ({"expires_at": "2026-03-12T10:30:00Z"}, "expires_at: must lie in the future."),
    *(
        ({"expires_at": when}, NO_UTC_TIME)
        for when in (
            *("2030-01-01T00:00Z", "2030-01-01T00:00:00", "2030-01-01T00:00:00+02:00"),
            *("2030-13-01T00:00:00Z", "2030-01-01", "soon", 1_900_000_000),
        )
    ),
    *OF_LIMITS,
]
OF_KEYS: Rows = [
    ({"include_byok_in_limit": None}, f"include_byok_in_limit: {NULL}"),
    NULL_NAME,
    WRONG_NAMES[0],
    ({"disabled": None}, f"disabled: {NULL}"),
    ({"disabled": 1}, "disabled: Input should be a valid boolean."),
    ({"workspace_id": "nowhere"}, "workspace_id: no such workspace in this account."),
    ({"kind": "management"}, "kind: is not a known field."),
    ({}, "No update fields provided."),
    ({"limit": -1}, "limit: must not be negative."),
    *OF_LIMITS,
]
OF_CREDITS: Rows = [
    ({"amount": 1, "kind": "usage"}, "kind: Input should be 'purchase', 'grant', 'refund' or "),
    ({"amount": 1, "note": "x" * 501}, "note: String should have at most 500 characters."),
    ({"amount": 1, "note": "a\0b"}, "note: must not contain the character U+0000."),
    ({"amount": 1, "currency": "EUR"}, "currency: is not a known field."),
    ({"amount": 1, "account_id": ""}, "account_id: String should have at least 1 character."),
    ({"amount": 1, "kind": "adjustment"}, "An adjustment needs a note that says why."),
    ({}, "amount: is required."),
    ({"amount": None}, "amount: must be a number of credits, such as 12.5."),
]
PATTERNS = "@email, @credit_card, @iban, @api_key"
OF_POLICIES: Rows = [
    ({"allowed_models": "acme"}, "allowed_models: Input should be a valid list."),
    ({"blocked_models": [""]}, "blocked_models.0: String should have at least 1 character."),
    ({"blocked_models": None}, "blocked_models: Input should be a valid list."),
    ({"data_collection": "maybe"}, "data_collection: Input should be 'allow' or 'deny'."),
    ({"allow": []}, "allow: is not a known field."),
    ({"guardrails": "privacy"}, "guardrails: Input should be a valid list."),
    (
        {"guardrails": ["privacy", "privcy"]},
        "guardrails: no guardrail is called 'privcy'; did you mean 'privacy'?",
    ),
    (
        {"patterns": ["@email", "@phone"]},
        f"patterns.1: is no known name; there are {PATTERNS} (a * before it makes it a text).",
    ),
]
NO_TIMES = (
    *("", "soon", "20260312", "2026-3-1", "2026-13-01", "2026-03-12T10:30:00", "2026-W11-4"),
    *("2026-03-12T25:00Z", "0001-01-01T00:00:00+02:00", "٢٠٢٦-٠٣-١٢"),
)
REFUSED: dict[tuple[str, str], tuple[dict[str, Any], Rows]] = {
    ("POST", "/accounts"): ({}, [*OF_ACCOUNTS, ({}, "name: is required."), NO_NAME]),
    ("PATCH", "/accounts/{account}"): (
        {},
        [
            *OF_ACCOUNTS,
            ({}, "No update fields provided."),
            *(({name: None}, f"{name}: {NULL}") for name in ("name", "type", "free_limits_exempt")),
        ],
    ),
    ("POST", "/users"): (ANN, [*OF_USERS, NO_NAME]),
    ("PATCH", "/users/{user}"): ({}, [*OF_USERS, NULL_NAME]),
    ("POST", "/workspaces"): (LAB, OF_WORKSPACES),
    ("PATCH", "/workspaces/default"): ({}, OF_WORKSPACES),
    ("POST", "/keys"): ({"name": "ci"}, OF_NEW_KEYS),
    ("PATCH", "/keys/{key}"): ({}, OF_KEYS),
    ("GET", "/keys"): (
        {},
        [
            ({"offset": -1}, "offset: Input should be greater than or equal to 0."),
            ({"offset": 2**31}, "offset: Input should be less than or equal to 2147483647."),
            ({"offset": "x"}, "offset: Input should be a valid integer, unable to parse"),
            ({"include_disabled": "maybe"}, "include_disabled: Input should be a valid boolean"),
            ({"workspace_id": ""}, "workspace_id: String should have at least 1 character."),
            ({"workspace_id": "\0"}, "workspace_id: must not contain the character U+0000."),
        ],
    ),
    ("POST", "/credits"): ({}, OF_CREDITS),
    **{
        ("PUT", f"{path}/policy"): ({}, OF_POLICIES)
        for path in ("/accounts/{account}", "/workspaces/default", "/keys/{key}")
    },
    ("GET", "/generation"): (
        {},
        [
            ({}, "id: is required."),
            ({"id": ""}, "id: String should have at least 1 character."),
            ({"id": "a\0"}, "id: must not contain the character U+0000."),
        ],
    ),
    ("GET", "/ledger/statement"): (
        {},
        [
            *(({n: t}, f"{n}: must be a day such as") for n in ("from", "to") for t in NO_TIMES),
            ({"from": "2026-03-13", "to": "2026-03-12"}, "The period ends before it begins."),
        ],
    ),
    ("GET", "/activity"): (
        {},
        [
            ({"date": "today"}, "date: must be a day such as 2026-01-31"),
            ({"from": "2026-02-30"}, "from: must be a day such as 2026-01-31"),
            ({"date": "2026-02-10", "to": "2026-02-11"}, "date: names one day"),
            ({"from": "2026-02-10", "to": "2026-02-09"}, "from: comes after to."),
            ({"group_by": "model"}, "group_by"),
        ],
    ),
}
"""For each operation what is in every request, and what is beside it, with how the refusal begins;
one that ends with a full stop is whole."""


@pytest.mark.exact
@pytest.mark.parametrize(("method", "path"), REFUSED)
async def test_a_wrong_field_is_refused_by_its_path(
    acme: Acme, method: str, path: str, subtests: pytest.Subtests
) -> None:
    given, rows = REFUSED[method, path]
    names = {"account": acme.account_id, "key": acme.api_key.key.hash}
    if "{user}" in path:
        made = await acme.management.post("/users", json=ANN)
        names["user"] = made.json()["data"]["id"]
    for wrong, text in rows:
        with subtests.test(wrong=wrong):
            sent: Any = {"params" if method == "GET" else "json": given | wrong}
            reply = await acme.operator.request(method, path.format(**names), **sent)
            said = message(reply, 400)
            assert said == text if text.endswith(".") else said.startswith(text)


# Amounts, as they are written in JSON

NO_AMOUNTS = {
    "must be a number of credits, such as 12.5.": (
        *('"1e3"', '"1_000"', '" 1"', '"\u0661"', '"."', '""', '"1,5"', '"ten"', '"NaN"'),
        *("true", "NaN", "Infinity", "-Infinity", "[1]"),
    ),
    "the amount is too large or too small.": (
        *("1e400", "1e99999999999999999999", "1e999999999", "9" * 5_000),
        *("0.0000000001", "1e-400", "1e-999999999", "1e-99999999999999999999"),
    ),
    "the amount is finer than a billionth of a credit.": ('"0.0000000001"', "12.0000000001"),
    "the amount is too large.": (
        *("1e18", "9999999999999", '"9999999999999"', f'"{format_credits(MAX_NANO + 1)}"'),
    ),
}
KINDS = ("purchase", "grant", "refund", "adjustment")


def credit_of(kind: str) -> str:
    """Return what is beside an amount of that kind."""
    return f'"kind": "{kind}", "note": "n"'


@pytest.mark.exact
@pytest.mark.parametrize(
    ("method", "path", "field", "beside"),
    [
        *(("POST", "/credits", "amount", credit_of(kind)) for kind in KINDS),
        ("POST", "/keys", "limit", '"name": "ci"'),
        ("PATCH", "/keys/{key}", "limit", '"disabled": false'),
    ],
)
async def test_what_is_no_amount_is_refused_and_changes_nothing(
    acme: Acme,
    database: Database,
    subtests: pytest.Subtests,
    method: str,
    path: str,
    field: str,
    beside: str,
) -> None:
    path = path.format(key=acme.api_key.key.hash)
    for text, amounts in NO_AMOUNTS.items():
        for amount in amounts:
            with subtests.test(amount=amount[:40]):
                body = f'{{{beside}, "{field}": {amount}}}'.encode()
                reply = await acme.operator.request(method, path, content=body)
                assert message(reply, 400) == f"{field}: {text}"
    assert (await acme.management.get("/credits")).json()["data"]["total_credits"] == 0
    async with database.reading() as read:
        assert (await read.execute(sa.select(limits))).all() == []


@pytest.mark.exact
async def test_an_amount_has_the_sign_of_its_kind(acme: Acme, subtests: pytest.Subtests) -> None:
    not_positive = ("0", "0.0", "-0", "-1", '"0"', '"-0.5"', '"0.000"', "-1e-9")
    wrong = [
        *product(KINDS[:3], not_positive, ["must be a positive number of credits"]),
        *product(KINDS[3:], ("0", "-0.0", '"0.00"'), ["must not be zero"]),
        *product(KINDS, ["-1e400"], ["the amount is too large or too small."]),
    ]
    for kind, amount, text in wrong:
        with subtests.test(kind=kind, amount=amount):
            body = f'{{{credit_of(kind)}, "amount": {amount}}}'.encode()
            assert text in message(await acme.operator.post("/credits", content=body), 400)
    for amount, text in (
        *((each, "limit: must not be negative.") for each in ("-1", "-0.000000001", "-1e400")),
        ('"-1"', "limit: a limit must not be negative."),
    ):
        with subtests.test(limit=amount):
            body = f'{{"name": "ci", "limit": {amount}}}'.encode()
            assert message(await acme.operator.post("/keys", content=body), 400) == text


@pytest.mark.exact
async def test_an_idempotency_key_of_the_wrong_length(
    acme: Acme, subtests: pytest.Subtests
) -> None:
    for key, status in [("", 400), ("x", 201), ("x" * 255, 201), ("x" * 256, 400)]:
        with subtests.test(length=len(key)):
            reply = await acme.operator.post(
                "/credits", json={"amount": 1}, headers={"Idempotency-Key": key}
            )
            assert reply.status_code == status
