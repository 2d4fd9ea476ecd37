"""The statements that book charges, for both databases: PostgreSQL takes `$1` for their `?1`.

Columns are named: one that a later release has added gets its default, and not NULL.
"""

from __future__ import annotations

from typing import Final

from tollhouse.accounting.types import CUSTOMER, REVENUE, BudgetScope, GenerationRecord, PostingKind

_FIELDS: Final = GenerationRecord.__struct_fields__[:-1]
"""Those of a record that are columns: all but the rights that it uses up."""
_NAMES: Final = {"attempts_json": "attempts", "created_ms": "created_at"}
_COLUMNS: Final = ", ".join(_NAMES.get(name, name) for name in _FIELDS)

# The totals

_KEYS: Final = {
    "account_id": "account_id",
    "day": "",
    "key_hash": "key_hash",
    "payer_hash": "payer_hash",
    "model": "model",
    "provider": "coalesce(provider, '')",
    "workspace_id": "workspace_id",
    "end_user": "external_user",
}
_COUNTERS: Final = {
    "requests": "count(*)",
    "prompt_tokens": "sum(input_tokens + cache_read_tokens + cache_write_tokens "
    "+ cache_write_1h_tokens)",
    "completion_tokens": "sum(output_tokens)",
    "reasoning_tokens": "sum(reasoning_tokens)",
    "cached_tokens": "sum(cache_read_tokens)",
    "usage_nano": "sum(cost_nano)",
    "byok_usage_nano": "sum(CASE WHEN is_byok THEN coalesce(provider_cost_nano, 0) ELSE 0 END)",
    "free_requests": "sum(CASE WHEN free_limited THEN 1 ELSE 0 END)",
    "byok_requests": "sum(CASE WHEN is_byok THEN 1 ELSE 0 END)",
    "last_used_at": "max(created_at)",
}
_SPEND: Final = "usage_nano byok_usage_nano"


def _sums(source: str, day: str) -> str:
    """Return the query of what generations add up to, by everything that a total is kept of."""
    columns = {**_KEYS, "day": day, **_COUNTERS}
    values = ", ".join(f"{value} AS {name}" for name, value in columns.items())
    groups = ", ".join(str(place) for place, _ in enumerate(_KEYS, 1))
    return f"SELECT {values} FROM {source} GROUP BY {groups}"  # noqa: S608


def _postings(source: str) -> str:
    return (
        "INSERT INTO postings (id, account_id, kind, source, destination, amount_nano, "  # noqa: S608
        f"generation_id, created_at) SELECT 'usage-' || id, account_id, "
        f"'{PostingKind.USAGE.value}', '{CUSTOMER}' || account_id, '{REVENUE}', cost_nano, id, "
        f"created_at FROM {source} cost_nano > 0"
    )


def _raising(table: str, keys: str, counters: str, source: str = "sums", **more: str) -> str:
    """Return the statement that raises a table of totals by what a source has of the same names.

    `more` has columns of which it has others, and as `having` which totals there are.
    """
    having = more.pop("having", "count(*) > 0")
    names, values = keys.split(), {name: f"sum({name})" for name in counters.split()} | more
    raised = {name: f"{table}.{name} + excluded.{name}" for name in values}
    if "last_used_at" in values:
        values["last_used_at"] = "max(last_used_at)"
        had, new = f"{table}.last_used_at", "excluded.last_used_at"
        raised["last_used_at"] = f"CASE WHEN {had} < {new} THEN {new} ELSE {had} END"
    order = ", ".join(names)
    return (
        f"INSERT INTO {table} ({', '.join([*names, *values])}) "  # noqa: S608
        f"SELECT {', '.join([*names, *values.values()])} FROM {source} "
        f"GROUP BY {order} HAVING {having} ORDER BY {order} ON CONFLICT ({order}) "
        f"DO UPDATE SET {', '.join(f'{name} = {value}' for name, value in raised.items())}"
    )


def _twice(columns: str, one: str, other: str, where: str) -> str:
    """Return a source that has columns of all sums, and of some once more for somebody else."""
    return (
        f"(SELECT {one}, {columns} FROM sums "  # noqa: S608
        f"UNION ALL SELECT {other}, {columns} FROM sums WHERE {where}) AS twice"
    )


_OF_KEYS: Final = _twice(
    "day, requests, usage_nano, byok_usage_nano, last_used_at",
    *("key_hash", "payer_hash", "payer_hash IS NOT NULL"),
)
_OF_OWNERS: Final = _twice(
    "account_id, day, usage_nano, byok_usage_nano",
    f"'{BudgetScope.WORKSPACE.value}' AS scope, workspace_id AS owner_id",
    f"'{BudgetScope.END_USER.value}', workspace_id || ':' || end_user",
    "end_user <> ''",  # see `owner.end_user`
)
TOTALS: Final = (
    _raising(
        *("account_totals", "account_id", ""),
        used_nano="sum(usage_nano)",
        purchased_nano="0",
        granted_nano="0",
        having="sum(usage_nano) > 0",
    ),
    _raising(
        *("account_days", "account_id day", "free_requests byok_requests"),
        having="sum(free_requests + byok_requests) > 0",
    ),
    _raising("key_totals", "key_hash", f"{_SPEND} last_used_at", _OF_KEYS),
    _raising("key_days", "key_hash day", f"{_SPEND} requests", _OF_KEYS),
    _raising(
        *("usage_days", "account_id day key_hash model provider workspace_id"),
        f"requests prompt_tokens completion_tokens reasoning_tokens cached_tokens {_SPEND}",
    ),
    _raising("owner_days", "account_id scope owner_id day", _SPEND, _OF_OWNERS),
)
"""They take `sums`, in the order of the locks."""

# SQLite: `?1` is the number of the last row before the new ones, and `sums` the connection's own.

_NEW: Final = "generations NOT INDEXED WHERE rowid > ?1"
"""Not by an index of accounts, say: of that everything would be gone through."""
LAST_ROW: Final = "SELECT coalesce(max(rowid), 0) FROM generations"
ADD: Final = (
    f"INSERT INTO generations ({_COLUMNS}) "  # noqa: S608
    f"VALUES ({', '.join('?' * len(_FIELDS))}) ON CONFLICT (id) DO NOTHING"
)
ADDED: Final = "SELECT id FROM generations WHERE rowid > ?1"
NO_SUMS: Final = (
    f"CREATE TEMP TABLE IF NOT EXISTS sums ({', '.join(_KEYS)}, "
    # A sum of more than 64 bits is no integer any more.
    + ", ".join(f"{name} CHECK (typeof({name}) = 'integer')" for name in _COUNTERS)
    + ")",
    "DELETE FROM temp.sums",
)
SUM_UP: Final = "INSERT INTO temp.sums " + _sums(_NEW, "date(created_at / 1000, 'unixepoch')")
POST: Final = _postings(f"{_NEW} AND")

# PostgreSQL: all of it in one, since each way to the server costs as much as some rows. It takes
# each column as an array.

_TYPES: Final = {"str": "text", "int": "bigint", "bool": "boolean"}


def _type(field: str) -> str:
    return _TYPES[GenerationRecord.__annotations__[field].partition(" ")[0]]


_ARRAYS: Final = ", ".join(f"?{place}::{_type(each)}[]" for place, each in enumerate(_FIELDS, 1))
_PARTS: Final = {
    "added": f"INSERT INTO generations ({_COLUMNS}) "  # noqa: S608
    f"SELECT {_COLUMNS.replace('attempts', 'attempts::json')} "
    f"FROM unnest({_ARRAYS}) AS given ({_COLUMNS}) ON CONFLICT (id) DO NOTHING RETURNING *",
    "sums": _sums("added", "to_char(date 'epoch' + (created_at / 86400000)::int, 'YYYY-MM-DD')"),
    "posted": _postings("added WHERE"),
    # Parts that change something are run from the last to the first, so the locks are in order.
    **{f"raised_{place}": each for place, each in enumerate(reversed(TOTALS))},
}
ADD_ALL: Final = (
    f"WITH {', '.join(f'{name} AS ({part})' for name, part in _PARTS.items())} "  # noqa: S608
    "SELECT id FROM added"
)

# Holders and budgets

RAISE_BOOKED: Final = (
    "INSERT INTO holders (id, booked_seq) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET "
    "booked_seq = CASE WHEN holders.booked_seq < ?2 THEN ?2 ELSE holders.booked_seq END"
)
"""Part of the transaction of the charges: so who reads the number knows which charges are in what
it reads beside it, and who reads after an answer was lost knows what was done."""
_ORDER: Final = "ORDER BY scope, id, period"
_LOCK: Final = " FOR UPDATE OF budgets"
"""On PostgreSQL, also against who makes rows just now, and has to wait for us."""
_ITS: Final = (
    "FROM leases WHERE holder = ?1 AND leases.scope = budgets.scope "
    "AND leases.id = budgets.id AND leases.period = budgets.period"
)
_FREE: Final = (
    f"UPDATE budgets SET leased_nano = leased_nano - (SELECT granted_nano {_ITS}) "  # noqa: S608
    f"WHERE EXISTS (SELECT 1 {_ITS})"
)
_HELD: Final = (
    f"SELECT 1 FROM budgets JOIN leases USING (scope, id, period) WHERE holder = ?1 {_ORDER}"  # noqa: S608
)
RELEASE: Final = {
    dialect: (
        "INSERT INTO holders (id, booked_seq) VALUES (?1, 0) ON CONFLICT (id) DO NOTHING",
        "UPDATE holders SET live = false, epoch = epoch + 1 WHERE id = ?1",
        _HELD + lock,
        _FREE,
        "DELETE FROM leases WHERE holder = ?1",
    )
    for dialect, lock in (("sqlite", ""), ("postgresql", _LOCK))
}
_PEOPLE: Final = (
    "SELECT hash, creator_user_id FROM api_keys WHERE hash IN (SELECT {}) "
    "AND creator_user_id IS NOT NULL AND kind <> 'intern'"
)
PEOPLE: Final = {
    "sqlite": _PEOPLE.format("value FROM json_each(?1)"),
    "postgresql": _PEOPLE.format("json_array_elements_text(?1::json)"),
}
"""Who made some keys. What an intern's key uses counts to the key that answers for it."""
_BUDGETS: Final = (
    "SELECT scope, id, period, include_byok FROM budgets WHERE (scope, id) IN (SELECT {}) "  # noqa: S608
    f"AND (period = '' OR substr(period, 13) > ?2) {_ORDER}"
)
BUDGETS: Final = {
    "sqlite": _BUDGETS.format(
        "json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?1)"
    ),
    "postgresql": _BUDGETS.format("value ->> 0, value ->> 1 FROM json_array_elements(?1::json)")
    + _LOCK,
}
"""Those of some owners, without windows that ended before a day."""
ANY_BUDGET: Final = "SELECT 1 FROM budgets LIMIT 1"
LEASES: Final = "SELECT scope, id, period FROM leases WHERE holder = ?1"
CHANGE_BUDGET: Final = (
    "UPDATE budgets SET used_nano = used_nano + ?1, leased_nano = leased_nano - ?2 "
    "WHERE scope = ?3 AND id = ?4 AND period = ?5"
)
CHANGE_LEASE: Final = (
    "UPDATE leases SET granted_nano = granted_nano - ?1 "
    "WHERE holder = ?2 AND scope = ?3 AND id = ?4 AND period = ?5"
)
