"""The SQL of batches. Every change of a status or a lease is a compare-and-set.

A row that did not fit any more is a lost race: the functions say so by what they return.
"""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from tollhouse.accounting.types import Attribution, Usage
from tollhouse.batches.retries import ItemFailures
from tollhouse.batches.types import (
    OPEN,
    RUNNING,
    Batch,
    BatchEndpoint,
    BatchProgress,
    BatchStatus,
    ChunkLease,
    ResultPart,
    StoredChunk,
    listed_status,
    statuses_before,
)
from tollhouse.storage.tables.batches import batch_chunks, batch_parts, batch_uploads, batches
from tollhouse.storage.tables.identity import api_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from tollhouse.batches.types import BatchFilter, VisibilityFilter
    from tollhouse.storage.database import Read, Write

_USAGE = tuple(Usage().tokens)


# Submitting


async def begin_upload(write: Write, batch_id: str, now: datetime) -> None:
    """Note that blobs of a batch are about to be written that has no row yet."""
    await write.execute(sa.insert(batch_uploads).values(batch_id=batch_id, started_at=now))


async def end_upload(write: Write, batch_id: str) -> bool:
    """Forget it: the batch has a row now; false where the upload was given up meanwhile."""
    ended = sa.delete(batch_uploads).where(
        batch_uploads.c.batch_id == batch_id, sa.not_(batch_uploads.c.given_up)
    )
    return (await write.execute(ended)).rowcount > 0


async def give_up_uploads(write: Write, before: datetime) -> Sequence[str]:
    """Return uploads that were given up: those that began before an instant are from now on."""
    given_up = sa.update(batch_uploads).where(batch_uploads.c.started_at < before)
    await write.execute(given_up.values(given_up=True))
    query = sa.select(batch_uploads.c.batch_id).where(batch_uploads.c.given_up)
    return list((await write.execute(query)).scalars())


async def give_up_upload(write: Write, batch_id: str) -> bool:
    """Give one upload up: its blobs are to be removed; false where it became a batch meanwhile."""
    given_up = sa.update(batch_uploads).where(batch_uploads.c.batch_id == batch_id)
    return (await write.execute(given_up.values(given_up=True))).rowcount > 0


async def forget_upload(write: Write, batch_id: str) -> None:
    """Forget an upload whose blobs are gone."""
    await write.execute(sa.delete(batch_uploads).where(batch_uploads.c.batch_id == batch_id))


async def add(write: Write, batch: Batch, chunks: Iterable[StoredChunk]) -> None:
    """Store a batch and its chunks, all of them ready to be run."""
    await write.execute(sa.insert(batches).values(**_row(batch)))
    rows = [
        {
            "batch_id": batch.id,
            "number": chunk.number,
            "first_item": chunk.first,
            "lines": chunk.lines,
            "state": "waiting",
            "ready_at": batch.created_at,
        }
        for chunk in chunks
    ]
    await write.execute(sa.insert(batch_chunks).values(rows))


async def submitted_since(
    read: Read, account_id: str, since: datetime
) -> tuple[int, datetime | None]:
    """Return how many batches an account submitted since an instant, and when the first was."""
    query = sa.select(
        sa.func.count().label("submitted"), sa.func.min(batches.c.created_at).label("first")
    ).where(batches.c.account_id == account_id, batches.c.created_at > since)
    found = (await read.execute(query)).mappings().one()
    return found["submitted"], found["first"]


async def count_open(read: Read, account_id: str) -> int:
    """Return how many batches of an account have not ended."""
    query = sa.select(sa.func.count()).where(
        batches.c.account_id == account_id, batches.c.finalized_at.is_(None)
    )
    return (await read.execute(query)).scalar_one()


# Reading


async def get(
    read: Read, batch_id: str, visibility: VisibilityFilter | None = None
) -> Batch | None:
    """Return a batch, deleted or not; without a visibility anybody's."""
    query = sa.select(batches).where(batches.c.id == batch_id)
    return await _one(read, query if visibility is None else query.where(*_seen(visibility)))


async def with_idempotency_key(read: Read, workspace_id: str, key: str) -> Batch | None:
    """Return the batch of a workspace that was submitted under a key."""
    query = sa.select(batches).where(
        batches.c.workspace_id == workspace_id, batches.c.idempotency_key == key
    )
    return await _one(read, query)


async def page(
    read: Read, visibility: VisibilityFilter, wanted: BatchFilter, after: Batch | None, limit: int
) -> Sequence[Batch]:
    """Return batches, newest first; `after` is the last one of the page before."""
    at, key = batches.c.created_at, batches.c.id
    query = sa.select(batches).where(*_seen(visibility), batches.c.deleted_at.is_(None))
    if wanted.statuses:
        query = query.where(batches.c.status.in_(_stored_as(wanted.statuses)))
    if wanted.created_after is not None:
        query = query.where(at > wanted.created_after)
    if wanted.created_before is not None:
        query = query.where(at < wanted.created_before)
    if wanted.kept_since is not None:
        query = query.where(at > wanted.kept_since)
    if after is not None:
        older = sa.and_(at == after.created_at, key < after.id)
        query = query.where(sa.or_(at < after.created_at, older))
    rows = await read.execute(query.order_by(at.desc(), key.desc()).limit(limit))
    return [_batch(row) for row in rows.mappings()]


async def parts(read: Read, batch_id: str) -> Sequence[ResultPart]:
    """Return where the results of a batch are, in the order of its chunks."""
    query = (
        sa.select(batch_parts.c.chunk, batch_parts.c.blob)
        .where(batch_parts.c.batch_id == batch_id)
        .order_by(batch_parts.c.chunk, batch_parts.c.blob)
    )
    return [ResultPart(row.chunk, row.blob) for row in await read.execute(query)]


# Statuses


async def move(write: Write, batch_id: str, target: BatchStatus, **facts: object) -> Batch | None:
    """Take a batch to another status, with further facts; None where it cannot come there now."""
    moved = (
        sa.update(batches)
        .where(batches.c.id == batch_id, batches.c.status.in_(statuses_before(target)))
        .values(status=target.value, **facts)
        .returning(batches)
    )
    return await _one(write, moved)


_SOME_OPEN: Final = sa.select(sa.literal(1)).where(batches.c.finalized_at.is_(None)).limit(1)


async def some_open(read: Read) -> bool:
    """Tell whether some batch has not ended."""
    return (await read.execute(_SOME_OPEN)).first() is not None


async def overdue(read: Read, now: datetime) -> Sequence[str]:
    """Return the batches whose time is over while items may still be begun."""
    query = sa.select(batches.c.id).where(
        batches.c.finalized_at.is_(None), batches.c.expires_at <= now, batches.c.status.in_(RUNNING)
    )
    return list((await read.execute(query)).scalars())


async def without_open_chunks(read: Read) -> Sequence[str]:
    """Return the batches that have not ended though every chunk is done."""
    is_open = sa.exists().where(
        batch_chunks.c.batch_id == batches.c.id, batch_chunks.c.state != "done"
    )
    query = sa.select(batches.c.id).where(batches.c.finalized_at.is_(None), ~is_open)
    return list((await read.execute(query)).scalars())


async def has_open_chunks(read: Read, batch_id: str) -> bool:
    """Tell whether some chunk of a batch is not done."""
    query = sa.select(
        sa.exists().where(batch_chunks.c.batch_id == batch_id, batch_chunks.c.state != "done")
    )
    return bool((await read.execute(query)).scalar_one())


async def release(write: Write, batch_id: str) -> None:
    """Let the results of a batch be read for ever."""
    await write.execute(sa.update(batches).where(batches.c.id == batch_id).values(released=True))


# Leases


async def lease(
    write: Write, now: datetime, until: datetime, token: str, *, only_idle: bool = False
) -> ChunkLease | None:
    """Take the next chunk: of the account with the fewest at work, of its batches the same.

    With `only_idle` only of an account and model of which no chunk is at work. None where nothing
    is ready, or somebody else was faster.
    """
    found = (await write.execute(_next_batch(now, only_idle=only_idle))).one_or_none()
    if found is None:
        return None
    is_ready = _ready(now, sa.literal(found.status not in RUNNING))
    number = (
        sa.select(batch_chunks.c.number)
        .where(batch_chunks.c.batch_id == found.batch_id, is_ready)
        .order_by(batch_chunks.c.number)
        .limit(1)
        .with_for_update(skip_locked=True)
        .scalar_subquery()
    )
    taken = (
        sa.update(batch_chunks)
        .where(batch_chunks.c.batch_id == found.batch_id, batch_chunks.c.number == number, is_ready)
        .values(
            state="running", token=token, lease_until=until, attempts=batch_chunks.c.attempts + 1
        )
        .returning(batch_chunks)
    )
    row = (await write.execute(taken)).one_or_none()
    if row is None:
        return None
    leased = ChunkLease(
        batch_id=found.batch_id,
        chunk=StoredChunk(row.number, row.first_item, row.lines),
        token=token,
        attempts=row.attempts,
        done=await _done(write, found.batch_id, row.number),
        failures=_failures(row),
    )
    if row.suspect is not None:
        await extend(write, leased, until, suspect=None, failures=stored_failures(leased.failures))
    return leased


def _next_batch(now: datetime, *, only_idle: bool) -> sa.Select[Any, Any]:
    """Return the query of the batch whose chunk is taken next, and its status."""
    is_ready = _ready(now, batches.c.status.not_in(RUNNING))
    is_leased = sa.and_(batch_chunks.c.state == "running", batch_chunks.c.lease_until > now)
    leased = _count_of(is_leased)
    account = batches.c.account_id
    found = (
        sa.select(
            batches.c.id.label("batch_id"),
            batches.c.status,
            batches.c.created_at,
            _count_of(is_ready).label("ready"),
            _count_of(sa.not_(is_ready)).label("others"),
            sa.func.sum(leased).over(partition_by=account).label("of_account"),
            sa.func.sum(leased).over(partition_by=(account, batches.c.model)).label("of_model"),
        )
        .join(batch_chunks, batch_chunks.c.batch_id == batches.c.id)
        .where(batch_chunks.c.state != "done", batches.c.status.in_(OPEN))
        .group_by(batches.c.id)
        .subquery()
    ).c
    query = sa.select(found.batch_id, found.status).where(found.ready > 0)
    if only_idle:
        query = query.where(found.of_model == 0)
    order = found.of_account, found.others, found.created_at, found.batch_id
    return query.order_by(*order).limit(1)


def _count_of(condition: sa.ColumnElement[bool]) -> sa.Function[int]:
    return sa.func.sum(sa.case((condition, 1), else_=0))


async def extend(write: Write, leased: ChunkLease, until: datetime, **facts: object) -> bool:
    """Keep a chunk for longer, with further facts; false where the lease was lost."""
    held = _held(leased).values(lease_until=until, **facts)
    return (await write.execute(held)).rowcount > 0


async def give_back(
    write: Write, leased: ChunkLease, ready_at: datetime, failures: Mapping[int, ItemFailures]
) -> bool:
    """Give a chunk back that is not done; nothing is held against it but its items' failures."""
    given = _held(leased).values(
        state="waiting",
        token=None,
        lease_until=None,
        ready_at=ready_at,
        attempts=0,
        suspect=None,
        failures=stored_failures(failures),
    )
    return (await write.execute(given)).rowcount > 0


async def finish_chunk(write: Write, leased: ChunkLease) -> bool:
    """Say that every item of a chunk has its result; false where the lease was lost."""
    done = _held(leased).values(state="done", token=None, lease_until=None, suspect=None)
    return (await write.execute(done)).rowcount > 0


async def drop_leases(write: Write) -> int:
    """Free every chunk: for a start on a database that nobody else uses."""
    freed = (
        sa.update(batch_chunks)
        .where(batch_chunks.c.state == "running")
        .values(state="waiting", token=None, lease_until=None)
    )
    return (await write.execute(freed)).rowcount


async def add_part(write: Write, leased: ChunkLease, blob: str, numbers: Sequence[int]) -> None:
    """Note that the results of some items of a chunk are in a blob."""
    chunk = leased.chunk.number
    row = {"batch_id": leased.batch_id, "chunk": chunk, "blob": blob, "numbers": list(numbers)}
    await write.execute(sa.insert(batch_parts).values(row))


async def has_part(read: Read, batch_id: str, blob: str) -> bool:
    """Tell whether the results in a blob are noted."""
    noted = sa.exists().where(batch_parts.c.batch_id == batch_id, batch_parts.c.blob == blob)
    return bool((await read.execute(sa.select(noted))).scalar_one())


async def advance(write: Write, batch_id: str, progress: BatchProgress) -> Batch:
    """Add what became of some items to their batch."""
    columns = {
        "completed": progress.completed,
        "failed": progress.failed,
        "unrun": progress.unrun,
        "cost_nano": progress.cost_nano,
        **progress.usage.tokens,
    }
    raised: dict[str, Any] = {name: batches.c[name] + by for name, by in columns.items() if by}
    if progress.is_byok:
        raised["is_byok"] = True
    advanced = (
        sa.update(batches)
        .where(batches.c.id == batch_id)
        .values(
            **raised,
            provider=sa.func.coalesce(batches.c.provider, progress.provider),
            error=sa.func.coalesce(batches.c.error, progress.error),
        )
        .returning(batches)
    )
    return _batch((await write.execute(advanced)).mappings().one())


# The end


async def mark_deleted(write: Write, batch_id: str, now: datetime) -> Batch | None:
    """Delete a batch that has ended, for its callers; None where it has not, or is deleted."""
    gone = (
        sa.update(batches)
        .where(
            batches.c.id == batch_id,
            batches.c.deleted_at.is_(None),
            batches.c.finalized_at.is_not(None),
        )
        .values(deleted_at=now)
        .returning(batches)
    )
    return await _one(write, gone)


async def to_purge(
    read: Read, created_before: datetime, limit: int, now: datetime
) -> Sequence[str]:
    """Return batches whose blobs nobody will read again: deleted, or past their retention."""
    query = (
        sa.select(batches.c.id)
        .where(
            batches.c.purged_at.is_(None),
            batches.c.finalized_at.is_not(None),
            sa.or_(batches.c.deleted_at.is_not(None), batches.c.created_at < created_before),
            _is_not_compressed(now),
        )
        .limit(limit)
    )
    return list((await read.execute(query)).scalars())


async def mark_purged(write: Write, batch_id: str, now: datetime) -> None:
    """Note that a batch's blobs are gone, and forget where they were.

    Nothing happens while the batch is being compressed: its blobs are to be removed again later.
    """
    purged = sa.update(batches).where(batches.c.id == batch_id, _is_not_compressed(now))
    if (await write.execute(purged.values(purged_at=now))).rowcount:
        for table in (batch_parts, batch_chunks):
            await write.execute(sa.delete(table).where(table.c.batch_id == batch_id))


# Compression


async def lease_compression(write: Write, now: datetime, until: datetime) -> str | None:
    """Take a batch that has ended and has chunks to compress, until an instant; None if none."""
    oldest = (
        sa.select(batches.c.id)
        .where(
            batches.c.purged_at.is_(None),
            batches.c.deleted_at.is_(None),
            batches.c.compress_at <= now,
        )
        .order_by(batches.c.created_at)
        .limit(1)
        .with_for_update(skip_locked=True)
        .scalar_subquery()
    )
    leased = sa.update(batches).where(batches.c.id == oldest).values(compress_at=until)
    return (await write.execute(leased.returning(batches.c.id))).scalar_one_or_none()


async def end_compression(
    write: Write, batch_id: str, leased_until: datetime, due: datetime | None
) -> None:
    """End a lease of `lease_compression`; `due` says when the batch may be taken again."""
    await write.execute(
        sa.update(batches)
        .where(batches.c.id == batch_id, batches.c.compress_at == leased_until)
        .values(compress_at=due)
    )


def _is_not_compressed(now: datetime) -> sa.ColumnElement[bool]:
    """Return which batches nobody compresses now."""
    return sa.or_(batches.c.compress_at.is_(None), batches.c.compress_at <= now)


# Rows


def _seen(visibility: VisibilityFilter) -> tuple[sa.ColumnElement[bool], ...]:
    own = batches.c.workspace_id == visibility.workspace_id
    if visibility.intern_id is None:
        return (own,)
    # A key that a manager deleted is replaced at the next boot; its row is still there.
    by_intern = sa.exists().where(
        api_keys.c.hash == batches.c.key_hash, api_keys.c.intern_id == visibility.intern_id
    )
    return own, by_intern


def _ready(now: datetime, is_closing: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Return which chunks may be taken: those of a batch that is being closed at once."""
    is_due = sa.or_(batch_chunks.c.ready_at <= now, is_closing)
    waiting = sa.and_(batch_chunks.c.state == "waiting", is_due)
    left = sa.and_(batch_chunks.c.state == "running", batch_chunks.c.lease_until <= now)
    return sa.or_(waiting, left)


def _held(leased: ChunkLease) -> sa.Update:
    return sa.update(batch_chunks).where(
        batch_chunks.c.batch_id == leased.batch_id,
        batch_chunks.c.number == leased.chunk.number,
        batch_chunks.c.token == leased.token,
    )


async def _done(read: Read, batch_id: str, chunk: int) -> frozenset[int]:
    query = sa.select(batch_parts.c.numbers).where(
        batch_parts.c.batch_id == batch_id, batch_parts.c.chunk == chunk
    )
    found = (await read.execute(query)).scalars()
    return frozenset(number for numbers in found for number in numbers)


def stored_failures(failures: Mapping[int, ItemFailures]) -> dict[str, dict[str, float]] | None:
    """Return items' failures as they are stored with their chunk."""
    return {str(number): asdict(each) for number, each in failures.items()} or None


def _failures(row: sa.Row[Any]) -> Mapping[int, ItemFailures]:
    """Return how items failed; whoever ran the suspect ended while it ran alone."""
    stored: dict[str, dict[str, Any]] = row.failures or {}
    found = {int(number): ItemFailures(**each) for number, each in stored.items()}
    if row.suspect is not None:
        before = found.get(row.suspect, ItemFailures())
        found[row.suspect] = replace(before, crashes=before.crashes + 1)
    return found


def _stored_as(statuses: Sequence[BatchStatus]) -> list[str]:
    return [each.value for each in BatchStatus if listed_status(each) in statuses]


async def _one(read: Read, statement: sa.Executable) -> Batch | None:
    row = (await read.execute(statement)).mappings().one_or_none()
    return None if row is None else _batch(row)


def _row(batch: Batch) -> dict[str, object]:
    row = {each.name: getattr(batch, each.name) for each in fields(Batch)}
    usage, preferences = row.pop("usage"), row.pop("preferences")
    return {
        **row,
        **usage.tokens,
        "wish": preferences,
        "status": batch.status.value,
        "endpoint": batch.endpoint.value,
        "ending": None if batch.ending is None else batch.ending.value,
        "attribution": asdict(batch.attribution),
    }


def _batch(row: sa.RowMapping) -> Batch:
    facts: dict[str, Any] = dict(row)
    del facts["purged_at"], facts["compress_at"]
    usage = Usage(**{name: facts.pop(name) for name in _USAGE})
    facts["endpoint"] = BatchEndpoint(facts["endpoint"])
    facts["status"] = BatchStatus(facts["status"])
    facts["ending"] = None if facts["ending"] is None else BatchStatus(facts["ending"])
    facts["attribution"] = Attribution(**facts["attribution"])
    preferences = facts.pop("wish")
    return Batch(**facts, preferences=preferences, usage=usage)
