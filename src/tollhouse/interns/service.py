"""Use cases of interns: what callers ask for. A reconciler brings them where they are wanted.

    create ──> row (queued) ──> own vault ──> wanted to run ──> reconciler
       └ sent again with the same key and body: whatever of this is missing is done now

What an operation accepts is a change of one row, guarded by the table in `lifecycle`; nothing of
the work itself happens in a request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from tollhouse.audit.types import AuditAction, AuditEntry
from tollhouse.interns import policy, repository
from tollhouse.interns.lifecycle import TARGET_STATES, LifecyclePhase, has_no_effect, phase_of
from tollhouse.interns.types import (
    DaemonOriginAndToken,
    DesiredState,
    Intern,
    InternChannel,
    InternState,
    InternStatus,
    Operation,
)
from tollhouse.kernel.concurrency import wait_for_event
from tollhouse.kernel.errors import NotFound, Unavailable
from tollhouse.storage.notifications import Topic
from tollhouse.vault.types import VaultKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.identity.types import Subject
    from tollhouse.interns.context import InternContext, ReconcilerStatus
    from tollhouse.interns.logs import InternLogLine, InternLogs
    from tollhouse.interns.policy import Cursor
    from tollhouse.interns.types import CreateIntern, InternFilter
    from tollhouse.kernel.clock import Clock
    from tollhouse.kernel.secret import Secret
    from tollhouse.storage.database import Read, Write

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


@dataclass(frozen=True, slots=True)
class NoReconciler:
    """Stands for a reconciler in a command that runs no interns."""

    clock: Clock

    async def check_reachable(self, read: Read, machine: str | None) -> None:
        """Raise `ServiceUnreachable` unless a server somewhere is at work."""
        if not await repository.is_machine_alive(read, self.clock.now(), machine):
            message = "No server runs on the data folder: start one with `tollhouse serve`."
            raise policy.ServiceUnreachable(message)

    def is_here(self, machine: str) -> bool:  # noqa: ARG002 - whichever it is
        """Tell that nothing runs here."""
        return False

    def expect_boot(self) -> None:
        """Do nothing: the server that is started next boots it."""


class InternService:
    """Interns of workspaces.

    What names an intern raises `NotFound` where the caller's workspace has no such one; what asks
    for an operation raises `InternBusy` where its state does not allow that, and
    `ServiceUnreachable` where no reconciler would do it.
    """

    def __init__(
        self, context: InternContext, reconciler: ReconcilerStatus, logs: InternLogs
    ) -> None:
        self._context = context
        self._database = context.database
        self._reconciler = reconciler
        self._logs = logs

    async def admit(self, caller: Subject, intern_id: str | None) -> None:
        """Make sure that a caller may ask for an intern, or with None for those of its workspace.

        Raises:
            Unauthenticated: Its key is none for interns.
            NotFound: Its workspace is not in the programme, or its key is an intern's own and it
                asks for something else.
        """
        async with self._database.reading() as read:
            await self._context.identity.authorize_intern_access(read, caller, intern_id)

    # Looking

    async def intern(self, read: Read, caller: Subject, intern_id: str) -> Intern:
        """Return an intern that a caller may see."""
        found = await repository.get(read, intern_id)
        if found is None or found.workspace_id != caller.workspace_id:
            raise policy.intern_not_found()
        return found

    async def found(self, intern_id: str) -> Intern:
        """Return an intern for somebody who needs no key to see it."""
        async with self._database.reading() as read:
            found = await repository.get(read, intern_id)
        if found is None:
            raise policy.intern_not_found()
        return found

    async def interns(
        self, read: Read, wanted: InternFilter, after: Cursor | None, limit: int
    ) -> InternsPage:
        """Return interns of a workspace, newest first."""
        found = await repository.page(read, wanted, after, limit + 1)
        return InternsPage(found[:limit], len(found) > limit)

    def log(self, intern: Intern, most: int) -> Sequence[InternLogLine]:
        """Return the last lines of what became of an intern on this machine, the oldest first."""
        return self._logs.tail(intern.id, most)

    def hostname(self, intern: Intern) -> str | None:
        """Return the host name at which an intern is reached; None until it was provisioned.

        It is the same for every caller: without a `public_url` it is this machine's own.
        """
        if intern.hostname is None:
            return None
        return policy.daemon_hostname(self._context.rules.public_url, intern.id)

    async def daemon(self, caller: Subject, intern_id: str, gateway: str) -> DaemonOriginAndToken:
        """Return how a running intern's daemon is reached, and record that it was asked for.

        `gateway` is the gateway's own origin, as the caller reached it.

        Raises:
            Conflict: It runs on another server's machine.
            Misconfigured: The token cannot be opened until an operator has helped.
            Bug: It cannot be opened now.
        """
        async with self._database.reading() as read:
            intern = await self.intern(read, caller, intern_id)
        policy.check_state(Operation.DAEMON, intern)
        if intern.machine is not None and not self._reconciler.is_here(intern.machine):
            message = (
                "The intern runs on another server, which alone reaches its daemon; ask that one."
            )
            raise policy.conflict("intern_unreachable", message, retryable=True)
        try:
            token = await self.token_of(intern)
        except Unavailable as error:
            raise policy.token_not_opened(error) from error
        action, workspace_id = AuditAction.DAEMON_REVEALED, caller.workspace_id
        entry = AuditEntry(action, caller.key_hash, workspace_id, intern_id, intern.vault_id)
        async with self._database.writing() as write:
            await self._context.audit.record(write, caller.account_id, [entry])
        return DaemonOriginAndToken(
            policy.daemon_origin(self._context.rules.public_url, gateway, intern_id), token
        )

    async def token_of(self, intern: Intern) -> Secret:
        """Return the token of a running intern's daemon, for our own requests to it.

        Raises `Conflict` where it has none in this moment, `Unavailable` where it cannot be opened.
        """
        run, vault_id = intern.run, intern.vault_id
        if run is None or vault_id is None:
            message = "The intern has no address yet; try again."
            raise policy.conflict("intern_unreachable", message, retryable=True)
        return await self._context.vaults.open_beside(vault_id, DAEMON_TOKEN, run.sealed_token)

    # Making

    async def create(
        self, caller: Subject, new: CreateIntern, idempotency_key: str | None
    ) -> Created:
        """Make an intern, or do what is missing of one that the same request has begun.

        Raises:
            Conflict: The name is taken, the idempotency key was used for another request, there
                are too many, the vault is not to be borrowed, or it is to run without a model.
            ServiceUnreachable: Its vault cannot be made now; the same request goes on with it.
            Misconfigured: The same, until an operator has helped.
        """
        if new.provision:
            self._reconciler.expect_boot()
        async with self._database.writing() as write:
            intern = await self._begin(write, caller, new, idempotency_key)
        is_new = intern.vault_id is None and await self._make_vault(caller, new, intern)
        async with self._database.reading() as read:
            try:
                return Created(await self.intern(read, caller, intern.id), is_new)
            except NotFound:
                raise policy.changed_concurrently() from None  # somebody has deleted it already

    async def _begin(
        self, write: Write, caller: Subject, new: CreateIntern, idempotency_key: str | None
    ) -> Intern:
        await repository.lock_creation(write)
        creator = caller.creator_user_id or ""
        digest = policy.request_digest(new)
        key = policy.stored_key(idempotency_key, digest)
        earlier = await repository.find_by_idempotency_key(write, caller.workspace_id, creator, key)
        if earlier is not None:
            if earlier.request_digest != digest:
                message = "The idempotency key was used for another intern."
                raise policy.conflict("idempotency_key_reused", message)
            return earlier
        await self._check_limits(write, caller.workspace_id, creator, new)
        if new.provision:
            await self._check_model(write, caller.account_id, caller.workspace_id)
        now = self._context.clock.now()
        intern = Intern(
            id=self._context.ids.uuid(),
            account_id=caller.account_id,
            workspace_id=caller.workspace_id,
            creator=creator,
            name=new.name,
            description=new.description,
            instructions=new.instructions,
            state=InternState(
                InternStatus.QUEUED if new.chat is None else InternStatus.AWAITING_CHAT_INSTALL,
                DesiredState.IDLE,
            ),
            attached_vault_id=new.vault_id,
            number=await repository.lowest_free_number(write),
            idempotency_key=key,
            request_digest=digest,
            created_at=now,
            updated_at=now,
        )
        await repository.insert_intern(write, intern)
        if new.chat is not None:
            await repository.save_channel(write, InternChannel(intern.id, new.chat), now)
        return intern

    async def _check_limits(
        self, write: Write, workspace_id: str, creator: str, new: CreateIntern
    ) -> None:
        most = self._context.rules.most
        if await repository.find_by_name(write, workspace_id, creator, new.name) is not None:
            raise policy.name_taken()
        if await repository.count(write, workspace_id, creator) >= most:
            message = f"You have {most} interns already; delete one first."
            raise policy.conflict("intern_limit_reached", message)
        if not await self._may_attach(write, workspace_id, new.vault_id):
            raise policy.vault_not_attachable()

    async def _check_model(self, read: Read, account_id: str, workspace_id: str) -> None:
        """Make sure that an intern without a model of its own has one to boot with."""
        workspace = await self._context.identity.workspace(read, account_id, workspace_id)
        if policy.model_of(None, workspace.preferences) is None:
            raise policy.no_model()

    async def _make_vault(self, caller: Subject, new: CreateIntern, intern: Intern) -> bool:
        """Make an intern's own vault, and have it run if that was asked for.

        It returns false where another request has done so at the same time.
        """
        vaults = self._context.vaults
        try:
            own = await vaults.new_vault(intern.account_id, intern.workspace_id, VaultKind.INTERN)
        except Unavailable as error:
            raise policy.vault_not_created(error) from error
        async with self._database.writing() as write:
            may_attach = await self._may_attach(
                write, intern.workspace_id, intern.attached_vault_id
            )
            if not may_attach:
                await repository.delete_unfinished(write, intern.id)
            elif not await repository.set_vault(write, intern.id, own.id):
                return False
            else:
                try:
                    await vaults.add_subject(write, intern.id, own, intern.attached_vault_id)
                except Unavailable as error:
                    raise policy.vault_not_created(error) from error
                if new.provision:
                    payer = policy.payer_facts(caller)
                    await self._move(write, intern, Operation.PROVISION, **payer)
        if not may_attach:
            raise policy.vault_not_attachable()
        return True

    async def _may_attach(self, read: Read, workspace_id: str, vault_id: str | None) -> bool:
        vaults = self._context.vaults
        return vault_id is None or await vaults.is_attachable(read, workspace_id, vault_id)

    # Changing

    async def change(
        self, write: Write, caller: Subject, intern_id: str, facts: dict[str, object]
    ) -> Intern:
        """Change what `facts` names of an intern and leave the rest; they hold from its next boot.

        Raises `Conflict` where the name is taken, or it is being deleted.
        """
        await repository.lock_creation(write)
        intern = await self.intern(write, caller, intern_id)
        policy.check_state(Operation.PATCH, intern)
        name = facts.get("name")
        if isinstance(name, str) and name != intern.name:
            other = await repository.find_by_name(write, intern.workspace_id, intern.creator, name)
            if other is not None:
                raise policy.name_taken()
        now = self._context.clock.now()
        changed = await repository.update_settings(write, intern_id, **facts, updated_at=now)
        if changed is None:
            raise policy.intern_not_found()
        return changed

    async def provision(self, caller: Subject, intern_id: str) -> None:
        """Have an intern run: for the first time, again, or anew after it failed.

        From then on the caller's key answers for what the intern spends. Raises `Conflict` where it
        has no model.
        """
        self._reconciler.expect_boot()
        await self._ask(caller, intern_id, Operation.PROVISION, **policy.payer_facts(caller))

    async def wake(self, intern_id: str) -> None:
        """Have an intern run again for somebody without a key.

        The key that answers for it stays the same; raises `Conflict` where there is none so far.
        """
        self._reconciler.expect_boot()
        async with self._database.writing() as write:
            intern = await repository.get(write, intern_id)
            if intern is None:
                raise policy.intern_not_found()
            if intern.payer_hash is None:
                message = (
                    "Nobody answers for it so far: tollhouse intern provision starts it first."
                )
                raise policy.conflict("intern_busy", message)
            await self._apply(write, intern, Operation.PROVISION)

    async def finish_install(self, write: Write, caller: Subject, intern_id: str) -> Intern:
        """Have an intern boot that waited for its chat service; others stay as they are.

        Raises what `provision` raises, and `InternBusy` where it is being deleted.
        """
        intern = await self.intern(write, caller, intern_id)
        policy.check_state(Operation.PATCH, intern)
        if phase_of(intern.state) is not LifecyclePhase.AWAITING:
            return intern
        await self._reconciler.check_reachable(write, intern.machine)
        if intern.model is None:
            await self._check_model(write, intern.account_id, intern.workspace_id)
        now = self._context.clock.now()
        await repository.finish_install(write, intern_id, now, caller.key_hash)
        write.notify(Topic.INTERN, intern_id)
        return await self.intern(write, caller, intern_id)

    async def suspend(self, caller: Subject, intern_id: str) -> None:
        """Stop an intern, and wait until its files are safe; that goes on if nobody waits.

        Raises `ServiceUnreachable` where it failed, too.
        """
        with self._context.notifications.subscribe(intern_id) as heard:
            await self._ask(caller, intern_id, Operation.SUSPEND)
            while not await self._is_stopped(caller, intern_id):
                await wait_for_event(heard, _LOOK_SECONDS)
                heard.clear()

    async def _is_stopped(self, caller: Subject, intern_id: str) -> bool:
        async with self._database.reading() as read:
            intern = await self.intern(read, caller, intern_id)
        match phase_of(intern.state):
            case LifecyclePhase.STOPPED:
                return True
            case LifecyclePhase.STOPPING:
                return False
            case _:
                why = intern.last_failure_message or f"it is {intern.state.status}"
                raise policy.ServiceUnreachable(f"The intern was not suspended: {why}")

    async def delete(self, caller: Subject, intern_id: str, *, acknowledged: bool) -> None:
        """Have an intern removed, with its vault and its workspace.

        Its workspace is lost where that is `acknowledged` and it cannot be archived.
        """
        await self._ask(caller, intern_id, Operation.DELETE, loss_acknowledged=acknowledged)

    async def _ask(
        self, caller: Subject, intern_id: str, operation: Operation, **facts: object
    ) -> None:
        async with self._database.writing() as write:
            intern = await self.intern(write, caller, intern_id)
            await self._apply(write, intern, operation, **facts)

    async def _apply(
        self, write: Write, intern: Intern, operation: Operation, **facts: object
    ) -> None:
        policy.check_state(operation, intern)
        # What is to be gone need not wait for the machine that has its files.
        machine = None if operation is Operation.DELETE else intern.machine
        await self._reconciler.check_reachable(write, machine)
        if not has_no_effect(operation, intern.state):
            if operation is Operation.PROVISION and intern.model is None:
                await self._check_model(write, intern.account_id, intern.workspace_id)
            await self._move(write, intern, operation, **facts)

    async def _move(
        self, write: Write, intern: Intern, operation: Operation, **facts: object
    ) -> None:
        cleared: dict[str, object] = {"last_failure_message": None, "step": None, "restarts": 0}
        target, now = TARGET_STATES[operation], self._context.clock.now()
        moved = await repository.apply_operation(
            write, intern.id, operation, target, updated_at=now, **cleared, **facts
        )
        if moved is None:
            # Somebody was faster, between our look and our change: look again.
            latest = await repository.get(write, intern.id)
            if latest is None:
                raise policy.intern_not_found()
            policy.check_state(operation, latest)
            raise policy.changed_concurrently()
        write.notify(Topic.INTERN, intern.id)
