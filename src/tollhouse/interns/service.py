"""Use cases of interns: what callers ask for. A reconciler brings them where they are wanted.

    create ──> row (queued) ──> own vault ──> wanted to run ──> reconciler
       └ sent again with the same key and body: whatever of this is missing is done now

What an operation accepts is a change of one row, guarded by the table in `lifecycle`; nothing of
the work itself happens in a request.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from tollhouse.audit.types import AuditAction, AuditEntry
from tollhouse.identity import admission
from tollhouse.interns import policy, repository
from tollhouse.interns.lifecycle import MOVES, Situation, holds_already, situation
from tollhouse.interns.types import DaemonAccess, Desired, Intern, Operation, State, Status
from tollhouse.kernel.errors import NotFound, Unavailable
from tollhouse.kernel.waiting import wait_for_event
from tollhouse.vault.types import VaultKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.identity.types import Subject
    from tollhouse.interns.context import Context
    from tollhouse.interns.logs import Line, Logs
    from tollhouse.interns.policy import Cursor
    from tollhouse.interns.ports import Crew
    from tollhouse.interns.types import InternFilter, Wish
    from tollhouse.kernel.clock import Clock
    from tollhouse.kernel.secret import Secret
    from tollhouse.storage.transaction import Read, Write

DAEMON_TOKEN: Final = "daemon-token"  # noqa: S105 - what it is sealed as
_LOOK_SECONDS: Final = 0.5
"""How often a state is looked at that another process may change."""


class InternsPage(NamedTuple):
    """Part of a list."""

    interns: Sequence[Intern]
    has_more: bool


class Created(NamedTuple):
    """An intern that was asked for."""

    intern: Intern
    is_new: bool
    """Whether this request has completed it."""


class Nobody:
    """No crew: for a command that serves nothing."""

    def __init__(self, clock: Clock) -> None:
        """Take what tells who is there."""
        self._clock = clock

    async def check_reachable(self, read: Read, machine: str | None) -> None:
        """Make sure that a server somewhere is at work.

        Raises:
            ServiceUnreachable: None is.
        """
        if not await repository.is_anybody_there(read, self._clock.now(), machine):
            message = "No server runs on the data folder: start one with `tollhouse serve`."
            raise policy.ServiceUnreachable(message)

    def is_here(self, machine: str) -> bool:  # noqa: ARG002 - whichever it is
        """Tell that nothing runs here."""
        return False

    def expect_boot(self) -> None:
        """Do nothing: the server that is started next boots it."""


class NoRooms:
    """No daemons: for the same."""

    def socket_of(self, intern_id: str) -> None:
        """Return that there is none."""
        del intern_id


class InternService:
    """Interns of workspaces."""

    def __init__(self, context: Context, crew: Crew, logs: Logs) -> None:
        """Take what the use cases need, who does the work, and where it is told."""
        self._context = context
        self._database = context.database
        self._crew = crew
        self._logs = logs

    # Who may

    async def admit(self, caller: Subject, intern_id: str | None) -> None:
        """Make sure that a caller may ask for this at all, before anything of it is looked at.

        Args:
            caller: Who asks.
            intern_id: The intern that it asks for, as it was sent; None for all of its workspace.

        Raises:
            Unauthenticated: Its key is none for interns.
            NotFound: Its workspace is not in the programme, or its key is an intern's own and it
                asks for something else.
        """
        async with self._database.reading() as read:
            await admission.admit(self._context.identity, read, caller, intern_id)

    # Looking

    async def intern(self, read: Read, caller: Subject, intern_id: str) -> Intern:
        """Return an intern that a caller may see.

        Raises:
            NotFound: There is no such intern in its workspace.
        """
        found = await repository.get(read, intern_id)
        if found is None or found.workspace_id != caller.workspace_id:
            raise policy.no_intern()
        return found

    async def interns(
        self, read: Read, wanted: InternFilter, after: Cursor | None, limit: int
    ) -> InternsPage:
        """Return interns of a workspace, newest first."""
        found = await repository.page(read, wanted, after, limit + 1)
        return InternsPage(found[:limit], len(found) > limit)

    def log(self, intern: Intern, most: int) -> Sequence[Line]:
        """Return the last lines of what became of an intern on this machine, the oldest first."""
        return self._logs.tail(intern.id, most)

    def hostname(self, intern: Intern, gateway: str) -> str | None:
        """Return the host name at which an intern is reached; None until it was provisioned.

        Args:
            intern: The intern.
            gateway: The gateway's own origin, as the caller reached it.
        """
        if intern.hostname is None:
            return None
        return policy.hostname(self._context.rules.public_url, gateway, intern.id)

    async def daemon(self, caller: Subject, intern_id: str, gateway: str) -> DaemonAccess:
        """Return how a running intern's daemon is reached; that it was asked for is recorded.

        Args:
            caller: Who asks.
            intern_id: The intern.
            gateway: The gateway's own origin, as the caller reached it.

        Raises:
            NotFound: There is no such intern in the caller's workspace.
            InternBusy: It does not run.
            Conflict: It runs on another server's machine.
            Misconfigured: The token cannot be opened until an operator has helped.
            Bug: It cannot be opened now.
        """
        async with self._database.reading() as read:
            intern = await self.intern(read, caller, intern_id)
        policy.check_state(Operation.DAEMON, intern)
        if intern.machine is not None and not self._crew.is_here(intern.machine):
            raise policy.not_here()
        try:
            token = await self.token_of(intern)
        except Unavailable as error:
            raise policy.no_token(error) from error
        entry = AuditEntry(
            AuditAction.DAEMON_REVEALED,
            caller.key_hash,
            caller.workspace_id,
            intern_id,
            intern.vault_id,
        )
        async with self._database.writing() as write:
            await self._context.audit.record(write, caller.account_id, [entry])
        return DaemonAccess(
            policy.origin(self._context.rules.public_url, gateway, intern_id), token
        )

    async def token_of(self, intern: Intern) -> Secret:
        """Return the token of a running intern's daemon, for our own requests to it.

        Raises:
            Conflict: It has none in this moment.
            Unavailable: It cannot be opened.
        """
        run, vault_id = intern.run, intern.vault_id
        if run is None or vault_id is None:
            raise policy.not_reachable()
        return await self._context.vaults.open_beside(vault_id, DAEMON_TOKEN, run.sealed_token)

    # Making

    async def create(self, wish: Wish) -> Created:
        """Make an intern, or do what is missing of one that the same request has begun.

        Raises:
            Conflict: The name is taken, the idempotency key was used for another request, there
                are too many, or the vault is not to be borrowed.
            ServiceUnreachable: Its vault cannot be made now; the same request goes on with it.
            Misconfigured: The same, until an operator has helped.
        """
        if wish.new.provision:
            self._crew.expect_boot()
        async with self._database.writing() as write:
            intern = await self._begin(write, wish)
        is_new = False
        if intern.vault_id is None:
            is_new = await self._give_vault(wish, intern)
        async with self._database.reading() as read:
            try:
                return Created(await self.intern(read, wish.caller, intern.id), is_new)
            except NotFound:
                raise policy.changed_meanwhile() from None  # somebody has deleted it already

    async def _begin(self, write: Write, wish: Wish) -> Intern:
        await repository.begin_creation(write)
        caller, creator = wish.caller, wish.caller.creator_user_id or ""
        digest = policy.request_digest(wish.new)
        key = policy.stored_key(wish.idempotency_key, digest)
        earlier = await repository.with_key(write, caller.workspace_id, creator, key)
        if earlier is not None:
            if earlier.request_digest != digest:
                raise policy.key_reused()
            return earlier
        await self._check_room(write, wish, creator)
        now = self._context.clock.now()
        intern = Intern(
            id=self._context.ids.uuid(),
            account_id=caller.account_id,
            workspace_id=caller.workspace_id,
            creator=creator,
            name=wish.new.name,
            description=wish.new.description,
            instructions=wish.new.instructions,
            model=None,
            state=State(Status.QUEUED, Desired.IDLE),
            step=None,
            last_failure_message=None,
            vault_id=None,
            attached_vault_id=wish.new.vault_id,
            hostname=None,
            number=await repository.free_number(write),
            idempotency_key=key,
            request_digest=digest,
            loss_acknowledged=False,
            workspace_digest=None,
            restarts=0,
            machine=None,
            created_at=now,
            updated_at=now,
        )
        await repository.add(write, intern)
        return intern

    async def _check_room(self, write: Write, wish: Wish, creator: str) -> None:
        workspace_id, most = wish.caller.workspace_id, self._context.rules.most
        if await repository.with_name(write, workspace_id, creator, wish.new.name) is not None:
            raise policy.name_taken()
        if await repository.count(write, workspace_id, creator) >= most:
            raise policy.too_many(most)
        borrowed = wish.new.vault_id
        vaults = self._context.vaults
        if borrowed is not None and not await vaults.is_attachable(write, workspace_id, borrowed):
            raise policy.not_attachable()

    async def _give_vault(self, wish: Wish, intern: Intern) -> bool:
        """Make an intern's own vault, and have it run if that was asked for.

        Returns:
            Whether it was this request that did so, and not another one at the same time.
        """
        vaults = self._context.vaults
        try:
            own = await vaults.new_vault(intern.account_id, intern.workspace_id, VaultKind.INTERN)
        except Unavailable as error:
            raise policy.no_vault(error) from error
        async with self._database.writing() as write:
            is_lent = await self._is_lent(write, intern)
            if not is_lent:
                await repository.drop_unfinished(write, intern.id)
            elif not await repository.with_vault(write, intern.id, own.id):
                return False
            else:
                try:
                    await vaults.add_subject(write, intern.id, own, intern.attached_vault_id)
                except Unavailable as error:
                    raise policy.no_vault(error) from error
                if wish.new.provision:
                    payer = policy.payer(wish.caller)
                    await self._move(write, intern, Operation.PROVISION, **payer)
        if not is_lent:
            raise policy.not_attachable()
        return True

    async def _is_lent(self, read: Read, intern: Intern) -> bool:
        """Tell whether an intern may still borrow what it was begun with, if anything."""
        vault_id = intern.attached_vault_id
        if vault_id is None:
            return True
        return await self._context.vaults.is_attachable(read, intern.workspace_id, vault_id)

    # Changing

    async def change(
        self, write: Write, caller: Subject, intern_id: str, facts: dict[str, object]
    ) -> Intern:
        """Change what `facts` names of an intern and leave the rest; they hold from its next boot.

        Raises:
            NotFound: There is no such intern in the caller's workspace.
            Conflict: The name is taken, or it is being deleted.
        """
        await repository.begin_creation(write)
        intern = await self.intern(write, caller, intern_id)
        policy.check_state(Operation.PATCH, intern)
        name = facts.get("name")
        if isinstance(name, str) and name != intern.name:
            other = await repository.with_name(write, intern.workspace_id, intern.creator, name)
            if other is not None:
                raise policy.name_taken()
        now = self._context.clock.now()
        changed = await repository.change(write, intern_id, **facts, updated_at=now)
        if changed is None:
            raise policy.no_intern()
        return changed

    async def provision(self, caller: Subject, intern_id: str) -> None:
        """Have an intern run: for the first time, again, or anew after it failed.

        From then on the caller's key answers for what the intern spends.

        Raises:
            NotFound: There is no such intern in the caller's workspace.
            InternBusy: Its state does not allow it.
            ServiceUnreachable: Nobody would do it.
        """
        self._crew.expect_boot()
        await self._ask(caller, intern_id, Operation.PROVISION, **policy.payer(caller))

    async def suspend(self, caller: Subject, intern_id: str) -> None:
        """Stop an intern, and wait until its files are safe; that goes on if nobody waits.

        Raises:
            NotFound: There is no such intern in the caller's workspace.
            InternBusy: Its state does not allow it.
            ServiceUnreachable: Nobody would do it, or it failed.
        """
        with self._context.news.listening(intern_id) as heard:
            await self._ask(caller, intern_id, Operation.SUSPEND)
            while not await self._is_stopped(caller, intern_id):
                await wait_for_event(heard, _LOOK_SECONDS)
                heard.clear()

    async def _is_stopped(self, caller: Subject, intern_id: str) -> bool:
        async with self._database.reading() as read:
            intern = await self.intern(read, caller, intern_id)
        match situation(intern.state):
            case Situation.STOPPED:
                return True
            case Situation.STOPPING:
                return False
            case _:
                raise policy.not_suspended(intern)

    async def delete(self, caller: Subject, intern_id: str, *, acknowledged: bool) -> None:
        """Have an intern removed, with its vault and its workspace.

        Args:
            caller: Who asks.
            intern_id: The intern.
            acknowledged: Whether its workspace may be lost, where it cannot be archived.

        Raises:
            NotFound: There is no such intern in the caller's workspace.
            InternBusy: Its state does not allow it.
            ServiceUnreachable: Nobody would do it.
        """
        await self._ask(caller, intern_id, Operation.DELETE, loss_acknowledged=acknowledged)

    # Parts

    async def _ask(
        self, caller: Subject, intern_id: str, operation: Operation, **facts: object
    ) -> None:
        async with self._database.writing() as write:
            intern = await self.intern(write, caller, intern_id)
            policy.check_state(operation, intern)
            # What is to be gone need not wait for the machine that has its files.
            machine = None if operation is Operation.DELETE else intern.machine
            await self._crew.check_reachable(write, machine)
            if not holds_already(operation, intern.state):
                await self._move(write, intern, operation, **facts)

    async def _move(
        self, write: Write, intern: Intern, operation: Operation, **facts: object
    ) -> None:
        cleared: dict[str, object] = {"last_failure_message": None, "step": None, "restarts": 0}
        target, now = MOVES[operation], self._context.clock.now()
        moved = await repository.move(
            write, intern.id, operation, target, updated_at=now, **cleared, **facts
        )
        if moved is None:
            # Somebody was faster, between our look and our change: look again.
            latest = await repository.get(write, intern.id)
            if latest is None:
                raise policy.no_intern()
            policy.check_state(operation, latest)
            raise policy.changed_meanwhile()
        write.after_commit(partial(self._context.news.ring, intern.id))
