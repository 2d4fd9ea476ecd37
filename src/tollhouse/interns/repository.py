"""The SQL of interns. Every change of a state is a compare-and-set, and so is all under a lease.

A row that did not fit any more is a lost race: the functions say so by what they return.
"""

from __future__ import annotations

from dataclasses import fields
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from tollhouse.interns.lifecycle import ACTIONS, QUEUED, RUNNING, states_before, states_changed_by
from tollhouse.interns.types import (
    DesiredState,
    Intern,
    InternChannel,
    InternLease,
    InternRun,
    InternState,
    InternStatus,
)
from tollhouse.storage.database import Read, Write, insert
from tollhouse.storage.tables.interns import (
    intern_channel_events,
    intern_channels,
    intern_machines,
    interns,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from tollhouse.interns.policy import Cursor
    from tollhouse.interns.types import InternFilter, Operation

_CREATION_LOCK: Final = 0x696E7472
_LEASES_PER_STATEMENT: Final = 1000
"""Leases of one statement: databases bound how many parameters one may have."""
_RUN_COLUMNS: Final = {f"run_{each.name}": each.name for each in fields(InternRun)}
_PLAIN_COLUMNS: Final = tuple(
    each.name for each in fields(Intern) if each.name not in {"state", "run"}
)
NO_RUN_COLUMNS: Final[Mapping[str, object]] = dict.fromkeys(_RUN_COLUMNS)
"""The facts of an intern that does not run."""


# Making


async def lock_creation(write: Write) -> None:
    """Keep other creations waiting: names, numbers and keys are looked at before they are taken."""
    await write.alone(_CREATION_LOCK)


async def lowest_free_number(read: Read) -> int:
    """Return the lowest number that no intern has."""
    other = interns.alias()
    taken = sa.exists().where(other.c.number == interns.c.number + 1)
    if not (await read.execute(sa.select(sa.exists().where(interns.c.number == 1)))).scalar_one():
        return 1
    query = sa.select(sa.func.min(interns.c.number) + 1).where(sa.not_(taken))
    return int((await read.execute(query)).scalar_one())


async def insert_intern(write: Write, intern: Intern) -> None:
    """Store a new intern."""
    await write.execute(sa.insert(interns).values(**_row_of_intern(intern)))


async def set_vault(write: Write, intern_id: str, vault_id: str) -> bool:
    """Note which vault is an intern's own; false where it has one, or is not there any more."""
    noted = (
        sa.update(interns)
        .where(interns.c.id == intern_id, interns.c.vault_id.is_(None))
        .values(vault_id=vault_id)
    )
    return (await write.execute(noted)).rowcount > 0


async def delete_unfinished(write: Write, intern_id: str) -> None:
    """Forget an intern that has no vault of its own yet."""
    unfinished = sa.and_(interns.c.id == intern_id, interns.c.vault_id.is_(None))
    await _delete_with_channel(write, unfinished)


# Reading


async def get(read: Read, intern_id: str) -> Intern | None:
    """Return an intern."""
    return await _fetch_one(read, sa.select(interns).where(interns.c.id == intern_id))


async def find_by_idempotency_key(
    read: Read, workspace_id: str, creator: str, key: str
) -> Intern | None:
    """Return the intern whose creation had an idempotency key."""
    return await _fetch_one(
        read, _of_creator(workspace_id, creator).where(interns.c.idempotency_key == key)
    )


async def find_by_name(read: Read, workspace_id: str, creator: str, name: str) -> Intern | None:
    """Return the intern of a name."""
    return await _fetch_one(read, _of_creator(workspace_id, creator).where(interns.c.name == name))


async def count(read: Read, workspace_id: str, creator: str) -> int:
    """Return how many interns somebody has in a workspace."""
    query = sa.select(sa.func.count()).select_from(_of_creator(workspace_id, creator).subquery())
    return (await read.execute(query)).scalar_one()


async def page(
    read: Read, wanted: InternFilter, after: Cursor | None, limit: int
) -> Sequence[Intern]:
    """Return at most `limit` interns, newest first, after the last one of the page before."""
    at, key = interns.c.created_at, interns.c.id
    query = sa.select(interns).where(interns.c.workspace_id == wanted.workspace_id)
    if wanted.statuses:
        query = query.where(interns.c.status.in_(sorted(wanted.statuses)))
    if after is not None:
        older = sa.and_(at == after.created_at, key < after.id)
        query = query.where(sa.or_(at < after.created_at, older))
    rows = await read.execute(query.order_by(at.desc(), key.desc()).limit(limit))
    return [_intern_of_row(row) for row in rows.mappings()]


async def ids(read: Read, of: Iterable[str] | None = None) -> frozenset[str]:
    """Return every intern there is; or those of some."""
    query = sa.select(interns.c.id)
    if of is not None:
        query = query.where(interns.c.id.in_(sorted(of)))
    return frozenset((await read.execute(query)).scalars())


# What callers change


async def update_settings(write: Write, intern_id: str, **facts: object) -> Intern | None:
    """Change what a caller may say of an intern; None where it is not there any more."""
    changed = sa.update(interns).where(interns.c.id == intern_id).values(**facts)
    return await _fetch_one(write, changed.returning(interns))


async def apply_operation(
    write: Write, intern_id: str, operation: Operation, target: InternState, **facts: object
) -> Intern | None:
    """Take an intern where an operation leads; None where its state does not allow that."""
    moved = (
        sa.update(interns)
        .where(interns.c.id == intern_id, _has_state(states_changed_by(operation)))
        .values(status=target.status.value, desired=target.desired.value, **facts)
        .returning(interns)
    )
    return await _fetch_one(write, moved)


# What a reconciler does


async def due(read: Read, machine: str, now: datetime) -> Sequence[str]:
    """Return the interns that a machine has to do something with and nobody holds, oldest first.

    That is each one under way to somewhere, and each one that runs: its sandbox is to be kept.
    """
    query = (
        sa.select(interns.c.id)
        .where(_has_state((*ACTIONS, RUNNING)), _is_free(machine, now))
        .order_by(interns.c.updated_at)
    )
    return list((await read.execute(query)).scalars())


async def acquire_lease(
    write: Write, intern_id: str, machine: str, now: datetime, until: datetime
) -> InternLease | None:
    """Take the right to act on an intern, on a machine; None where somebody else has it."""
    return await _lease(write, intern_id, _is_free(machine, now), until, machine=machine)


async def extend_leases(
    write: Write, leases: Iterable[InternLease], until: datetime
) -> frozenset[str]:
    """Keep leases for longer; return the interns whose lease was kept."""
    kept: set[str] = set()
    due = iter([(each.intern.id, each.token) for each in leases])
    while some := list(islice(due, _LEASES_PER_STATEMENT)):
        held = sa.tuple_(interns.c.id, interns.c.lease_token).in_(some)
        extended = sa.update(interns).where(held).values(lease_until=until)
        kept.update((await write.execute(extended.returning(interns.c.id))).scalars())
    return frozenset(kept)


async def release_lease(write: Write, held: InternLease) -> None:
    """Give a lease back."""
    await write.execute(_held(held).values(lease_until=None))


async def requeue_interns(write: Write, machine: str, now: datetime) -> None:
    """Free every intern of a machine, and have those boot that ran: where nothing runs on it."""
    of_machine = sa.or_(interns.c.machine == machine, interns.c.machine.is_(None))
    freed = sa.update(interns).where(of_machine)
    await write.execute(freed.values(lease_until=None, lease_token=interns.c.lease_token + 1))
    ran = sa.update(interns).where(of_machine, _has_state(states_before(QUEUED)))
    status, desired = QUEUED.status.value, QUEUED.desired.value
    await write.execute(ran.values(status=status, desired=desired, step=None, updated_at=now))


async def enter_state(
    write: Write, held: InternLease, target: InternState, now: datetime, **facts: object
) -> Intern | None:
    """Take an intern to a state that follows its own; None if it has another, or no lease, now."""
    moved = (
        _held(held)
        .where(_has_state(states_before(target)))
        .values(status=target.status.value, desired=target.desired.value, updated_at=now, **facts)
        .returning(interns)
    )
    return await _fetch_one(write, moved)


async def update(write: Write, held: InternLease, **facts: object) -> Intern | None:
    """Note further facts of an intern; None where the lease was lost."""
    return await _fetch_one(write, _held(held).values(**facts).returning(interns))


async def delete(write: Write, held: InternLease) -> bool:
    """Forget an intern that is being destroyed; false where the lease was lost."""
    doomed = sa.and_(
        interns.c.id == held.intern.id,
        interns.c.lease_token == held.token,
        interns.c.status == InternStatus.DESTROYING.value,
    )
    return await _delete_with_channel(write, doomed)


# Chat services


async def save_channel(write: Write, channel: InternChannel, now: datetime) -> None:
    """Store the chat service of an intern, or replace it."""
    facts = {
        "service": channel.service,
        "settings": dict(channel.settings),
        "sealed_tokens": channel.sealed_tokens,
        "updated_at": now,
    }
    stored = insert(write, intern_channels).values(intern_id=channel.intern_id, **facts)
    await write.execute(stored.on_conflict_do_update(index_elements=["intern_id"], set_=facts))


async def channel(read: Read, intern_id: str) -> InternChannel | None:
    """Return the chat service of an intern."""
    query = sa.select(intern_channels).where(intern_channels.c.intern_id == intern_id)
    row = (await read.execute(query)).mappings().one_or_none()
    return None if row is None else InternChannel(**row)


async def installed_channels(read: Read, machine: str, now: datetime) -> Sequence[InternChannel]:
    """Return the installed chat services that a machine has to connect.

    They are those of its interns; the first one of all machines that are there has those of
    nobody's interns, too.
    """
    others, is_nobodys = intern_machines.c, interns.c.machine.is_(None)
    earlier = sa.exists().where(others.machine < machine, others.present_until > now)
    ours = sa.or_(interns.c.machine == machine, sa.and_(is_nobodys, sa.not_(earlier)))
    query = (
        sa.select(intern_channels)
        .join(interns, interns.c.id == intern_channels.c.intern_id)
        .where(intern_channels.c.sealed_tokens.is_not(None), ours)
        .where(interns.c.status != InternStatus.DESTROYING.value)
    )
    return [InternChannel(**row) for row in (await read.execute(query)).mappings()]


async def finish_install(write: Write, intern_id: str, now: datetime, payer_hash: str) -> None:
    """Have an intern boot that waited for its chat service."""
    waited = sa.update(interns).where(
        interns.c.id == intern_id, interns.c.status == InternStatus.AWAITING_CHAT_INSTALL.value
    )
    status, desired = QUEUED.status.value, QUEUED.desired.value
    facts = {"status": status, "desired": desired, "payer_hash": payer_hash, "updated_at": now}
    await write.execute(waited.values(**facts))


async def claim_event(write: Write, intern_id: str, event_id: str, now: datetime) -> bool:
    """Remember what a chat service has sent; false where it was sent before."""
    seen = insert(write, intern_channel_events).values(
        intern_id=intern_id, event_id=event_id, seen_at=now
    )
    return (await write.execute(seen.on_conflict_do_nothing())).rowcount > 0


async def forget_events(write: Write, intern_id: str, before: datetime, most: int) -> None:
    """Forget what an intern's chat service has sent before, and all but the latest `most`."""
    of_it, at = intern_channel_events.c.intern_id == intern_id, intern_channel_events.c.seen_at
    newest = sa.select(at).where(of_it).order_by(at.desc()).offset(most).limit(1)
    old = sa.or_(at < before, at <= newest.scalar_subquery())
    await write.execute(sa.delete(intern_channel_events).where(of_it, old))


# Machines


async def save_heartbeat(write: Write, machine: str, until: datetime) -> None:
    """Note until when a machine is sure to be there; the present, where it leaves."""
    noted = insert(write, intern_machines).values(machine=machine, present_until=until)
    facts = {"present_until": until}
    await write.execute(noted.on_conflict_do_update(index_elements=["machine"], set_=facts))


async def heartbeats(read: Read) -> Mapping[str, datetime]:
    """Return until when each machine has said that it is there."""
    query = sa.select(intern_machines.c.machine, intern_machines.c.present_until)
    return {row.machine: row.present_until for row in await read.execute(query)}


async def is_known_machine(read: Read, machine: str) -> bool:
    """Tell whether a machine was ever there."""
    known = sa.exists().where(intern_machines.c.machine == machine)
    return bool((await read.execute(sa.select(known))).scalar_one())


async def is_machine_alive(
    read: Read, now: datetime, machine: str | None, but: str | None = None
) -> bool:
    """Tell whether a machine is there; with None, whether any is `but` one that does not count."""
    there = sa.select(intern_machines.c.machine).where(intern_machines.c.present_until > now)
    if machine is not None:
        there = there.where(intern_machines.c.machine == machine)
    if but is not None:
        there = there.where(intern_machines.c.machine != but)
    return bool((await read.execute(sa.select(there.exists()))).scalar_one())


async def stranded(read: Read, silent: Mapping[str, datetime], now: datetime) -> Sequence[str]:
    """Return the interns under way, or said to run, whose machines are away.

    `silent` has what each machine that is away has said last; one that was never there is away too.
    """
    query = sa.select(interns.c.id).where(
        _has_state((*ACTIONS, RUNNING)), _is_stranded(silent, now)
    )
    return list((await read.execute(query.order_by(interns.c.updated_at))).scalars())


async def acquire_stranded_lease(
    write: Write, intern_id: str, silent: Mapping[str, datetime], now: datetime, until: datetime
) -> InternLease | None:
    """Take the right to act on an intern whose machine is away; None where it is back."""
    return await _lease(write, intern_id, _is_stranded(silent, now), until)


async def _delete_with_channel(write: Write, which: sa.ColumnElement[bool]) -> bool:
    """Forget interns, with what is kept of their chat services; false where there were none."""
    for table in (intern_channel_events, intern_channels):
        of_it = table.c.intern_id.in_(sa.select(interns.c.id).where(which))
        await write.execute(sa.delete(table).where(of_it))
    return (await write.execute(sa.delete(interns).where(which))).rowcount > 0


async def _lease(
    write: Write,
    intern_id: str,
    condition: sa.ColumnElement[bool],
    until: datetime,
    **facts: object,
) -> InternLease | None:
    taken = (
        sa.update(interns)
        .where(interns.c.id == intern_id, condition)
        .values(lease_token=interns.c.lease_token + 1, lease_until=until, **facts)
        .returning(interns)
    )
    row = (await write.execute(taken)).mappings().one_or_none()
    return None if row is None else InternLease(_intern_of_row(row), row["lease_token"])


def _of_creator(workspace_id: str, creator: str) -> sa.Select[Any]:
    return sa.select(interns).where(
        interns.c.workspace_id == workspace_id, interns.c.creator == creator
    )


def _held(held: InternLease) -> sa.Update:
    return sa.update(interns).where(
        interns.c.id == held.intern.id, interns.c.lease_token == held.token
    )


def _has_state(states: Iterable[InternState]) -> sa.ColumnElement[bool]:
    return sa.or_(
        *(
            sa.and_(
                interns.c.status == state.status.value, interns.c.desired == state.desired.value
            )
            for state in sorted(states, key=lambda each: (each.status, each.desired))
        )
    )


def _is_released(now: datetime) -> sa.ColumnElement[bool]:
    return sa.or_(interns.c.lease_until.is_(None), interns.c.lease_until <= now)


def _is_free(machine: str, now: datetime) -> sa.ColumnElement[bool]:
    ours = sa.or_(interns.c.machine.is_(None), interns.c.machine == machine)
    return sa.and_(_is_released(now), ours)


def _is_stranded(silent: Mapping[str, datetime], now: datetime) -> sa.ColumnElement[bool]:
    machine, until = intern_machines.c.machine, intern_machines.c.present_until
    as_before = [sa.and_(machine == name, until == word) for name, word in silent.items()]
    there = sa.exists().where(machine == interns.c.machine, sa.not_(sa.or_(sa.false(), *as_before)))
    return sa.and_(_is_released(now), interns.c.machine.is_not(None), sa.not_(there))


async def _fetch_one(read: Read, statement: sa.Select[Any] | sa.UpdateBase) -> Intern | None:
    row = (await read.execute(statement)).mappings().one_or_none()
    return None if row is None else _intern_of_row(row)


def _intern_of_row(row: sa.RowMapping) -> Intern:
    run = None
    if row["run_key_hash"] is not None:
        run = InternRun(**{name: row[column] for column, name in _RUN_COLUMNS.items()})
    state = InternState(InternStatus(row["status"]), DesiredState(row["desired"]))
    return Intern(**{name: row[name] for name in _PLAIN_COLUMNS}, state=state, run=run)


def _row_of_intern(intern: Intern) -> dict[str, object]:
    row: dict[str, object] = {name: getattr(intern, name) for name in _PLAIN_COLUMNS}
    row |= {"status": intern.state.status.value, "desired": intern.state.desired.value}
    return {**row, **run_columns(intern.run)}


def run_columns(run: InternRun | None) -> Mapping[str, object]:
    """Return the facts of what belongs to a running intern, for `enter_state` and `update`."""
    if run is None:
        return NO_RUN_COLUMNS
    return {column: getattr(run, name) for column, name in _RUN_COLUMNS.items()}
