"""What an intern may be called, what may be done with it, what its creation is known by. Pure."""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from tollhouse.identity.types import KeyKind
from tollhouse.interns.lifecycle import refusal
from tollhouse.interns.types import Operation, Status
from tollhouse.kernel.clock import iso_utc
from tollhouse.kernel.errors import Bug, Conflict, Invalid, NotFound, TollhouseError

if TYPE_CHECKING:
    from tollhouse.identity.types import Subject
    from tollhouse.interns.types import Intern, NewIntern
    from tollhouse.kernel.errors import Unavailable

NAME: Final = r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$"
SHORTEST_NAME: Final = 2
LONGEST_NAME: Final = 17
LONGEST_DESCRIPTION: Final = 2_000
LONGEST_INSTRUCTIONS: Final = 100_000
LONGEST_MODEL: Final = 200
MODEL: Final = r"^[A-Za-z0-9~._:@+-]+\/[A-Za-z0-9~._:@+-]+$"
LONGEST_KEY: Final = 255
"""Characters of an idempotency key."""
MOST_STATUSES: Final = 8
LARGEST_BODY: Final = 1_048_576
"""Bytes of a body."""

_NAME: Final = re.compile(NAME[1:-1])
_MODEL: Final = re.compile(MODEL[1:-1])
_EARLIER_NAMES: Final = {"awaiting_slack_install": Status.AWAITING_CHAT_INSTALL}
"""Names of statuses that published clients send."""
_RAN_WELL: Final = timedelta(minutes=10)
"""After which a sandbox that ends is one that ends for the first time."""
_DERIVED: Final = "derived:"
"""What a key begins with that was derived; one that was sent is stored behind `_SENT`."""
_SENT: Final = "sent:"
_DOING: Final = {
    Operation.PROVISION: "provisioned",
    Operation.SUSPEND: "suspended",
    Operation.DELETE: "deleted",
    Operation.PATCH: "changed",
    Operation.DAEMON: "reached",
    Operation.CHAT: "talked to",
}


class InternBusy(Conflict):
    """The intern's state does not allow it."""


class ServiceUnreachable(TollhouseError):
    """Nobody is there who acts on interns, or did not succeed; another try may."""

    kind = "upstream"
    code = "server"


class Misconfigured(TollhouseError):
    """Only an operator can help; its text stays inside, like that of a bug."""


class Cursor(NamedTuple):
    """The last intern of a page."""

    created_at: datetime
    id: str


def check_name(name: str) -> str:
    """Return an intern's name.

    Raises:
        Invalid: It is none.
    """
    if not SHORTEST_NAME <= len(name) <= LONGEST_NAME or not _NAME.fullmatch(name):
        raise Invalid(
            f"name: must have {SHORTEST_NAME} to {LONGEST_NAME} characters: lower-case letters, "
            "digits and single hyphens between them, a letter first."
        )
    return name


def check_model(model: str) -> str:
    """Return a model as interns are configured with it.

    Raises:
        Invalid: It is not of the form `author/slug`.
    """
    if not 1 <= len(model) <= LONGEST_MODEL or not _MODEL.fullmatch(model):
        message = "model: must have the form author/slug, such as simulated/echo."
        raise Invalid(message)
    return model


def payer(caller: Subject) -> dict[str, object]:
    """Return who answers for an intern that a caller has run; an intern never for itself."""
    return {} if caller.kind is KeyKind.INTERN else {"payer_hash": caller.key_hash}


def check_workspace(caller: Subject, workspace_id: str | None) -> None:
    """Make sure that a workspace that a caller names is its own.

    Raises:
        NotFound: It is not, or there is none of that id.
    """
    if workspace_id is not None and workspace_id.lower() != caller.workspace_id:
        message = "The key has no such workspace."
        raise NotFound(message)


def check_state(operation: Operation, intern: Intern) -> None:
    """Make sure that an intern's state allows an operation.

    Raises:
        InternBusy: It does not.
    """
    found = refusal(operation, intern.state)
    if found is None:
        return
    status = intern.state.status
    message = f"The intern is {status}: it cannot be {_DOING[operation]}."
    if found.retryable and operation is not Operation.CHAT:
        message = f"The intern is {status}, and something is under way with it: try again later."
    raise InternBusy(message, metadata=found._asdict())


def check_idempotency_key(key: str | None) -> str | None:
    """Return the idempotency key of a creation.

    Raises:
        Invalid: It is empty or too long.
    """
    if key is not None and not 1 <= len(key) <= LONGEST_KEY:
        message = f"Idempotency-Key: must have 1 to {LONGEST_KEY} characters."
        raise Invalid(message)
    return key


def restarts_that_count(restarts: int, since: datetime | None, now: datetime) -> int:
    """Return the restarts of a sandbox that count against it: none from before it ran well.

    Args:
        restarts: So far.
        since: When its daemon was last found to answer; None where it never was.
        now: When it ended.
    """
    return 0 if since is not None and now - since >= _RAN_WELL else restarts


def request_digest(new: NewIntern) -> str:
    """Return what equal creations have in common, in hex; defaults count as if they were sent."""
    facts = [new.name, new.description, new.instructions, new.vault_id, new.provision]
    return sha256(json.dumps(facts).encode()).hexdigest()


def stored_key(sent: str | None, digest: str) -> str:
    """Return what a creation is found by: its key, or what stands for it."""
    return f"{_DERIVED}{digest}" if sent is None else f"{_SENT}{sent}"


def statuses(text: str | None) -> frozenset[Status]:
    """Return the statuses that a list is filtered by; empty for all.

    Args:
        text: Names with commas between them.

    Raises:
        Invalid: It names one that there is not, or too many.
    """
    if text is None:
        return frozenset()
    names = text.split(",")
    if len(names) > MOST_STATUSES:
        raise Invalid(f"status: must name at most {MOST_STATUSES} statuses.")
    try:
        return frozenset(_EARLIER_NAMES.get(name) or Status(name) for name in names)
    except ValueError:
        known = ", ".join(Status)
        raise Invalid(f"status: must be some of {known}, with commas between them.") from None


def cursor_text(cursor: Cursor) -> str:
    """Return a cursor for a client, which need not understand it."""
    text = f"{iso_utc(cursor.created_at)}|{cursor.id}"
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def cursor_of(text: str | None) -> Cursor | None:
    """Return the cursor that a client sent back.

    Raises:
        Invalid: It is none of ours.
    """
    if text is None:
        return None
    try:
        at, _, intern_id = urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().partition("|")
        found = Cursor(datetime.fromisoformat(at).astimezone(UTC), intern_id)
    except (ValueError, Base64Error, OverflowError):
        found = None
    if found is None or cursor_text(found) != text:
        message = "starting_after: must be the next_cursor of an earlier page."
        raise Invalid(message)
    return found


def no_intern() -> NotFound:
    """Return the refusal that says nothing of what there is."""
    return NotFound("No such intern.")


def name_taken() -> Conflict:
    """Return the refusal of a name."""
    metadata = {"reason": "name_taken", "retryable": False}
    return Conflict("Another intern of yours has this name.", metadata=metadata)


def key_reused() -> Conflict:
    """Return the refusal of an idempotency key."""
    metadata = {"reason": "idempotency_key_reused", "retryable": False}
    return Conflict("The idempotency key was used for another intern.", metadata=metadata)


def too_many(most: int) -> Conflict:
    """Return the refusal of one intern more."""
    metadata = {"reason": "intern_limit_reached", "retryable": False}
    return Conflict(f"You have {most} interns already; delete one first.", metadata=metadata)


def not_attachable() -> Conflict:
    """Return the refusal of a vault that is not to be borrowed."""
    metadata = {"reason": "vault_not_attachable", "retryable": False}
    message = "vault_id: no other intern of this workspace has this vault."
    return Conflict(message, metadata=metadata)


def not_reachable() -> Conflict:
    """Return the refusal where a daemon has no address yet."""
    metadata = {"reason": "intern_unreachable", "retryable": True}
    return Conflict("The intern has no address yet; try again.", metadata=metadata)


def no_vault(error: Unavailable) -> TollhouseError:
    """Return the failure of a creation whose vault could not be made."""
    if _for_operators(error):
        return _misconfigured(error)
    message = "The intern's vault cannot be made now; send the same request again."
    return ServiceUnreachable(message, retry_after=error.retry_after)


def no_token(error: Unavailable) -> TollhouseError:
    """Return the failure where a daemon's token cannot be opened.

    Source: interns API, `GET /interns/{internId}/daemon`, which knows no 503.
    """
    return _misconfigured(error) if _for_operators(error) else Bug(error.message)


def not_here() -> Conflict:
    """Return the refusal where a daemon is reached on another machine alone."""
    metadata = {"reason": "intern_unreachable", "retryable": True}
    message = "The intern runs on another server, which alone reaches its daemon; ask that one."
    return Conflict(message, metadata=metadata)


def nobody_there() -> ServiceUnreachable:
    """Return the refusal where nobody would do what is asked."""
    return ServiceUnreachable("Nobody runs interns at the moment; try again later.")


def machine_away() -> ServiceUnreachable:
    """Return the refusal where those who would do it are not there."""
    message = "The machine that has the intern's files does not answer; try again later."
    return ServiceUnreachable(message)


def changed_meanwhile() -> InternBusy:
    """Return the refusal where somebody else was faster."""
    metadata = {"reason": "intern_busy", "retryable": True}
    return InternBusy("The intern was changed in this moment; try again.", metadata=metadata)


def not_suspended(intern: Intern) -> ServiceUnreachable:
    """Return the failure of a suspension."""
    why = intern.last_failure_message or f"it is {intern.state.status}"
    return ServiceUnreachable(f"The intern was not suspended: {why}")


def origin(public_url: str | None, gateway: str, intern_id: str) -> str:
    """Return the origin of an intern's daemon.

    Args:
        public_url: The address of interns, with `{intern}` in it; None: the gateway's own.
        gateway: The gateway's origin.
        intern_id: The intern.
    """
    return gateway if public_url is None else public_url.replace("{intern}", intern_id)


def hostname(public_url: str | None, gateway: str, intern_id: str) -> str | None:
    """Return the host name in what `origin` returns."""
    return urlsplit(origin(public_url, gateway, intern_id)).hostname


def _for_operators(error: Unavailable) -> bool:
    return error.metadata.get("retryable") is False


def _misconfigured(error: Unavailable) -> Misconfigured:
    metadata = {"reason": "configuration_error", "retryable": False}
    return Misconfigured(error.message, metadata=metadata)
