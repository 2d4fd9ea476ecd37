"""What a reconciler does with one intern: boot it, suspend it, destroy it.

Each step may be done again from its beginning: a killed server's successor does just that. What is
written stands under the lease; who has lost it writes nothing and takes down what it has begun.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import structlog

from tollhouse.identity.access import DAEMON_PREFIX
from tollhouse.identity.types import KeyKind, NewKey, Workspace
from tollhouse.interns import policy, repository
from tollhouse.interns.lifecycle import (
    ACTIONS,
    BOOT_STEPS,
    BOOTING,
    DESTROY_FAILED,
    FAILED,
    RUNNING,
    STOPPED,
    ReconcilerAction,
    describe,
)
from tollhouse.interns.runtimes.base import Launch, Runtime, RuntimeFailed, SandboxLimits
from tollhouse.interns.sandboxes import PortForwarder, RunningIntern, Sandboxes, wait_until_healthy
from tollhouse.interns.service import DAEMON_TOKEN
from tollhouse.interns.types import Intern, InternLease, InternRun, InternState
from tollhouse.interns.workspaces.jobs import JobRefused
from tollhouse.kernel.concurrency import IdleDeadline
from tollhouse.kernel.errors import StartError, TollhouseError
from tollhouse.kernel.failpoints import failpoint
from tollhouse.kernel.secret import Secret
from tollhouse.vault.egress.service import EgressService, SessionSpec
from tollhouse.vault.types import GATEWAY_HOST, Recipient

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from tollhouse.interns.context import InternContext
    from tollhouse.interns.logs import InternLogs
    from tollhouse.interns.workspaces.folders import Workspaces
    from tollhouse.storage.database import Write

_ACTOR: Final = "operator"
_OWN: Final = (
    "/v1/key",
    "/v1/interns/{}",
    "/v1/vault/interns/{}/secrets",
    "/v1/vault/interns/{}/effective-secrets",
)
"""What an intern may read of the gateway through its way out: what is its own."""
_NO_MODEL: Final = (
    "it has no model: give it one, or the workspace a default "
    "(tollhouse workspaces set --default-model author/slug)"
)
_AWAY: Final = (
    "the machine that has its files does not answer; they are kept there: provision it again once "
    "that machine is back"
)
_FILES_AWAY: Final = (
    "workspace_archive_failed: the machine that has its files does not answer; delete it again "
    "once that machine is back, or with acknowledge_workspace_loss to lose them"
)
_ACKNOWLEDGED_SECONDS: Final = 10.0
"""How long an archive is tried whose loss is accepted."""
_ARCHIVE_SHARE: Final = 0.8
"""Of the time that a removal has."""
_log = structlog.get_logger(__name__)


class LeaseLost(Exception):
    """Somebody else acts on the intern now."""


class ActionFailed(Exception):
    """It cannot go on; the message is for the intern's owner: no path, no secret."""


@dataclass(frozen=True, slots=True)
class ActionTimeouts:
    """How long what may take."""

    boot_seconds: float
    suspend_seconds: float
    destroy_seconds: float
    stop_seconds: float
    """For the programs in a sandbox, before they are killed."""


@dataclass(frozen=True, slots=True)
class ReconcilerDependencies:
    """What the actions of a reconciler work with."""

    runtime: Runtime
    limits: SandboxLimits
    egress: EgressService
    port_forwarder: PortForwarder
    sandboxes: Sandboxes
    workspaces: Workspaces
    logs: InternLogs
    timeouts: ActionTimeouts


class ReconcilerActions:
    """Brings one intern somewhere else; each action raises `LeaseLost` where another acts on it."""

    def __init__(
        self, context: InternContext, tools: ReconcilerDependencies, *, boots_at_once: int
    ) -> None:
        """Let so many interns boot at a time; the others wait for their turn."""
        self._context = context
        self._dependencies = tools
        self._turns = asyncio.Semaphore(boots_at_once)

    async def boot(self, held: InternLease) -> Intern:
        """Have an intern run; afterwards it does, or has failed and says why.

        Its time begins with its turn: after a restart, many want to boot at once.
        """
        self._dependencies.egress.make_ready()  # it takes longest of all, the first time
        await self._dependencies.sandboxes.take_down(held.intern.id, 0)
        async with self._turns:
            return await self._boot(held)

    async def _boot(self, held: InternLease) -> Intern:
        intern = held.intern
        step = 1
        try:
            async with self._deadline(self._dependencies.timeouts.boot_seconds) as alive:
                intern = await self._begin(held)
                await failpoint("intern.prepare.before")
                await self._prepare(intern, alive)
                step = 2
                running = self._dependencies.sandboxes.begin(intern.id)
                intern, token = await self._open_egress(held, running, intern)
                step = 3
                # From now on it may write: a digest of before says nothing any more.
                await self._note_step(held, step, workspace_digest=None)
                await self._start(running, intern)
                step = 4
                await self._note_step(held, step)
                return await self._forward_port(held, running, intern, token)
        except ActionFailed as error:
            await self._dependencies.sandboxes.take_down(
                intern.id, self._dependencies.timeouts.stop_seconds
            )
            return await self._fail(held, FAILED, f"{BOOT_STEPS[step - 1]}: {error}")
        except BaseException:
            # Cancelled, or the lease is lost: the next one begins again.
            await self._dependencies.sandboxes.take_down(intern.id, 0)
            raise

    async def _begin(self, held: InternLease) -> Intern:
        if held.intern.state == BOOTING:
            return await self._note_step(held, 1)
        return await self._arrive(held, BOOTING, step=1, last_failure_message=None)

    async def _prepare(self, intern: Intern, alive: Callable[[], None]) -> None:
        problem = await asyncio.to_thread(self._dependencies.runtime.problem)
        if problem is not None:
            raise ActionFailed(problem)
        if intern.vault_id is None:
            raise ActionFailed("its vault was never made; send the request that made it again")
        await self._dependencies.workspaces.prepare(intern.id)
        if intern.workspace_digest is None:
            return
        if await self._dependencies.workspaces.digest(intern.id, alive) != intern.workspace_digest:
            raise ActionFailed(
                "its files are not those that it was suspended with; "
                "provision it again to have it run with them as they are"
            )

    async def _open_egress(
        self, held: InternLease, running: RunningIntern, intern: Intern
    ) -> tuple[Intern, Secret]:
        """Give an intern a new text of its key, a new token of its daemon, and the way out."""
        ids, vaults = self._context.ids, self._context.vaults
        async with self._context.database.reading() as read:
            workspace = await self._context.identity.workspace(
                read, intern.account_id, intern.workspace_id
            )
        model = _model(intern, workspace)
        token = Secret(f"{DAEMON_PREFIX}{ids.key_material()}")
        sealed = await vaults.seal_beside(str(intern.vault_id), DAEMON_TOKEN, token)
        async with self._context.database.writing() as write:
            wanted = NewKey(
                f"intern {intern.name}",
                kind=KeyKind.INTERN,
                creator_user_id=intern.creator or None,
                intern_id=intern.id,
                payer_hash=intern.payer_hash,
            )
            issued = await self._context.keys.issue(
                write, intern.account_id, intern.workspace_id, wanted
            )
            token_hash = sha256(token.reveal().encode()).hexdigest()
            run = InternRun(model, issued.key.hash, token_hash, sealed)
            noted = await self._note_step_in(write, held, 2, **repository.run_columns(run))
        who = Recipient(intern.account_id, intern.workspace_id, intern.id, issued.key.hash)
        session = SessionSpec(
            intern.id,
            who,
            key=Secret(issued.text),
            plain_http=workspace.plain_http,
            reads=tuple(each.format(intern.id) for each in _OWN),
        )
        try:
            await failpoint("intern.egress.before")
            running.egress = await self._dependencies.egress.open(session)
            await failpoint("intern.egress.after")
        except (TollhouseError, StartError) as error:
            _log.error("intern_way_out_failed", intern=intern.id, reason=str(error))
            message = "the egress proxy does not serve it; the server's log says why"
            raise ActionFailed(message) from None
        return noted, token

    async def _start(self, running: RunningIntern, intern: Intern) -> None:
        tools, run = self._dependencies, intern.run
        if running.egress is None or run is None:
            raise LeaseLost
        try:
            listener = tools.sandboxes.listen(running)
        except OSError as error:
            _log.error("intern_socket_failed", intern=intern.id, errno=error.errno)
            message = "the socket of its daemon cannot be made; the server's log says why"
            raise ActionFailed(message) from None
        launch = Launch(
            name=intern.id,
            user=tools.workspaces.user(intern.number),
            workspace=tools.workspaces.path(intern.id),
            egress=running.egress,
            listener=listener,
            settings=_settings(intern, run),
            limits=tools.limits,
        )
        try:
            running.sandbox = await tools.runtime.start(launch)
        except RuntimeFailed as error:
            raise ActionFailed(error.message) from None
        finally:
            listener.close()
        running.ended = asyncio.create_task(running.sandbox.wait())
        await failpoint("intern.sandbox.after")

    async def _forward_port(
        self, held: InternLease, running: RunningIntern, intern: Intern, token: Secret
    ) -> Intern:
        path, ended, run = running.listener, running.ended, intern.run
        sandbox = running.sandbox
        if path is None or ended is None or run is None or sandbox is None:
            raise LeaseLost
        await _healthy_or_ended(path, token, ended)
        await self._dependencies.port_forwarder.open(
            intern.id, path, run.token_hash, sandbox.memory_full
        )
        await failpoint("intern.port.after")
        running.is_forwarded = True
        running.since = self._context.clock.now()
        public_url = self._context.rules.public_url
        hostname = policy.daemon_hostname(public_url, intern.id)
        return await self._arrive(held, RUNNING, hostname=hostname, step=None)

    async def suspend(self, held: InternLease) -> Intern:
        """Stop an intern and make its files safe; afterwards it is stopped, or has failed."""
        tools, intern = self._dependencies, held.intern
        await failpoint("intern.suspend.before")
        try:
            async with self._deadline(tools.timeouts.suspend_seconds) as alive:
                await tools.sandboxes.take_down(intern.id, tools.timeouts.stop_seconds)
                await failpoint("intern.flush.before")
                digest = await tools.workspaces.digest(intern.id, alive, flush=True)
                await failpoint("intern.flush.after")
        except ActionFailed as error:
            await tools.sandboxes.take_down(intern.id, 0)
            return await self._fail(held, FAILED, f"Suspending: {error}")
        async with self._context.database.writing() as write:
            await self._context.keys.withdraw(write, intern.id)
            return await self._arrive_in(
                write, held, STOPPED, workspace_digest=digest, **repository.NO_RUN_COLUMNS
            )

    async def destroy(self, held: InternLease) -> Intern | None:
        """Remove an intern with all that it has; return it where that failed."""
        tools, intern = self._dependencies, held.intern
        await failpoint("intern.destroy.before")
        try:
            async with self._deadline(tools.timeouts.destroy_seconds) as alive:
                await tools.sandboxes.take_down(intern.id, tools.timeouts.stop_seconds)
                await self._archive(intern, alive)
                await failpoint("intern.archive.after")
                await tools.workspaces.retire(intern.id)
                await self._forget(held)
        except ActionFailed as error:
            return await self._fail(held, DESTROY_FAILED, str(error))
        await failpoint("intern.remove.before")
        await tools.workspaces.remove(intern.id)
        await failpoint("intern.remove.after")
        tools.logs.forget(intern.id)
        return None

    async def _archive(self, intern: Intern, alive: Callable[[], None]) -> None:
        patience = IdleDeadline(self._dependencies.timeouts.destroy_seconds * _ARCHIVE_SHARE)
        most = _ACKNOWLEDGED_SECONDS if intern.loss_acknowledged else None

        def goes_on() -> None:
            alive()
            patience.reset()

        try:
            async with asyncio.timeout(most), patience:
                await self._dependencies.workspaces.archive(intern, goes_on)
        except Exception as error:  # noqa: BLE001 - its edge: what it failed by decides nothing
            reason = str(error) or type(error).__name__
            _log.error("intern_archive_failed", intern=intern.id, reason=reason)
            if not intern.loss_acknowledged:
                why = str(error) if isinstance(error, JobRefused) else "they cannot be stored"
                raise ActionFailed(
                    f"workspace_archive_failed: its files could not be archived ({why}); delete it "
                    "again, or with acknowledge_workspace_loss to lose them"
                ) from None

    async def _forget(self, held: InternLease) -> None:
        intern = held.intern
        async with self._context.database.writing() as write:
            await self._context.keys.delete(write, intern.id)
            if not await repository.delete(write, held):
                raise LeaseLost
            await self._context.vaults.forget_subject(write, intern.id, _ACTOR)
        self._context.notifications.notify(intern.id)

    async def give_up(self, held: InternLease) -> None:
        """Say what is true of an intern whose machine has been away for too long."""
        intern = held.intern
        if ACTIONS.get(intern.state) is not ReconcilerAction.DESTROY:
            await self._fail(held, FAILED, _AWAY)
        elif intern.loss_acknowledged:
            await self._forget(held)
        else:
            await self._fail(held, DESTROY_FAILED, _FILES_AWAY)

    async def fail(self, held: InternLease, message: str) -> Intern:
        """Say that a running intern runs no more."""
        tools = self._dependencies
        await tools.sandboxes.take_down(held.intern.id, tools.timeouts.stop_seconds)
        return await self._fail(held, FAILED, message)

    async def _fail(self, held: InternLease, target: InternState, message: str) -> Intern:
        _log.warning("intern_failed", intern=held.intern.id, reason=message)
        async with self._context.database.writing() as write:
            await self._context.keys.withdraw(write, held.intern.id)
            return await self._arrive_in(
                write,
                held,
                target,
                last_failure_message=message,
                step=None,
                workspace_digest=None,
                **repository.NO_RUN_COLUMNS,
            )

    async def _note_step(self, held: InternLease, step: int, **facts: object) -> Intern:
        async with self._context.database.writing() as write:
            return await self._note_step_in(write, held, step, **facts)

    async def _note_step_in(
        self, write: Write, held: InternLease, step: int, **facts: object
    ) -> Intern:
        noted = await repository.update(write, held, step=step, **facts)
        if noted is None:
            raise LeaseLost
        write.after_commit(lambda: self._tell(noted))
        return noted

    async def _arrive(self, held: InternLease, target: InternState, **facts: object) -> Intern:
        async with self._context.database.writing() as write:
            return await self._arrive_in(write, held, target, **facts)

    async def _arrive_in(
        self, write: Write, held: InternLease, target: InternState, **facts: object
    ) -> Intern:
        now = self._context.clock.now()
        arrived = await repository.enter_state(write, held, target, now, **facts)
        if arrived is None:
            raise LeaseLost
        write.after_commit(lambda: self._tell(arrived))
        return arrived

    def _tell(self, intern: Intern) -> None:
        """Let those know who wait for it, and those who read its log."""
        self._dependencies.logs.note(
            intern.id, describe(intern.state, intern.step, intern.last_failure_message)
        )
        self._context.notifications.notify(intern.id)

    @asynccontextmanager
    async def _deadline(self, seconds: float) -> AsyncGenerator[Callable[[], None]]:
        """Let an action take so long, counted anew whenever it says that it goes on."""
        patience = IdleDeadline(seconds)
        try:
            async with patience:
                yield patience.reset
        except (ActionFailed, LeaseLost):
            raise
        except JobRefused as error:
            raise ActionFailed(str(error)) from None
        except Exception as error:  # the edge of an action: nothing keeps an intern under way
            if patience.expired():
                raise ActionFailed(f"it was not done within {seconds:g} seconds") from None
            _log.exception("intern_journey_failed")
            raise ActionFailed("it failed for a reason that the server's log names") from error


async def _healthy_or_ended(path: Path, token: Secret, ended: asyncio.Task[str]) -> None:
    """Wait until a daemon answers; raises `ActionFailed` where its sandbox ends before."""
    healthy = asyncio.ensure_future(wait_until_healthy(path, token))
    try:
        await asyncio.wait({healthy, ended}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        healthy.cancel()
        await asyncio.gather(healthy, return_exceptions=True)
    if ended.done():
        raise ActionFailed(f"the sandbox ended: {ended.result()}")
    healthy.result()


def _model(intern: Intern, workspace: Workspace) -> str:
    """Return the model that an intern boots with; raises `ActionFailed` where there is none."""
    model = policy.model_of(intern.model, workspace.preferences)
    if model is None:
        raise ActionFailed(_NO_MODEL)  # it was taken away after it was asked to run
    return model


def _settings(intern: Intern, run: InternRun) -> dict[str, object]:
    return {
        "token_sha256": run.token_hash,
        "intern": {"id": intern.id, "name": intern.name},
        "agent": {
            "model": run.model,
            "instructions": intern.instructions or "",
            "base_url": f"http://{GATEWAY_HOST}/v1",
        },
    }
