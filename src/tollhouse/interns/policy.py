"""What an intern may be called, what may be done with it, what its creation is known by. Pure."""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from tollhouse.identity.types import KeyKind, Subject
from tollhouse.interns.lifecycle import refusal
from tollhouse.interns.types import CreateIntern, Intern, InternStatus, Operation
from tollhouse.kernel.clock import iso_utc
from tollhouse.kernel.errors import Bug, Conflict, Invalid, NotFound, TollhouseError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME: Final = r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$"
_THIS_MACHINE: Final = "http://127.0.0.1"
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
_LEGACY_STATUSES: Final = {"awaiting_slack_install": InternStatus.AWAITING_CHAT_INSTALL}
"""Names of statuses that published clients send."""
_DERIVED_PREFIX: Final = "derived:"
"""What a key begins with that was derived; one that was sent is stored behind `_SENT_PREFIX`."""
_SENT_PREFIX: Final = "sent:"
_PARTICIPLES: Final = {
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
    """Return an intern's name; raises `Invalid` where it is none."""
    if not SHORTEST_NAME <= len(name) <= LONGEST_NAME or not _NAME.fullmatch(name):
        raise Invalid(
            f"name: must have {SHORTEST_NAME} to {LONGEST_NAME} characters: lower-case letters, "
            "digits and single hyphens between them, a letter first."
        )
    return name


def check_model(model: str) -> str:
    """Return a model; raises `Invalid` where it is not of the form `author/slug`."""
    if not 1 <= len(model) <= LONGEST_MODEL or not _MODEL.fullmatch(model):
        raise Invalid("model: must have the form author/slug, such as simulated/echo.")
    return model


def payer_facts(caller: Subject) -> dict[str, object]:
    """Return who answers for an intern that a caller has run; an intern never for itself."""
    return {} if caller.kind is KeyKind.INTERN else {"payer_hash": caller.key_hash}


def check_workspace(caller: Subject, workspace_id: str | None) -> None:
    """Raise `NotFound` where a workspace that a caller names is not its own."""
    if workspace_id is not None and workspace_id.lower() != caller.workspace_id:
        raise NotFound("The key has no such workspace.")


def check_state(operation: Operation, intern: Intern) -> None:
    """Raise `InternBusy` where an intern's state does not allow an operation."""
    found = refusal(operation, intern.state)
    if found is None:
        return
    status = intern.state.status
    message = f"The intern is {status}: it cannot be {_PARTICIPLES[operation]}."
    if found.retryable and operation is not Operation.CHAT:
        message = f"The intern is {status}, and something is under way with it: try again later."
    raise InternBusy(message, metadata=found._asdict())


def check_idempotency_key(key: str | None) -> str | None:
    """Return the idempotency key of a creation; raises `Invalid` where it is empty or too long."""
    if key is not None and not 1 <= len(key) <= LONGEST_KEY:
        raise Invalid(f"Idempotency-Key: must have 1 to {LONGEST_KEY} characters.")
    return key


def request_digest(new: CreateIntern) -> str:
    """Return what equal creations have in common, in hex; defaults count as if they were sent."""
    facts = [new.name, new.description, new.instructions, new.vault_id, new.provision]
    facts += [] if new.chat is None else [new.chat]
    return sha256(json.dumps(facts).encode()).hexdigest()


def stored_key(sent: str | None, digest: str) -> str:
    """Return what a creation is found by: its key, or what stands for it."""
    return f"{_DERIVED_PREFIX}{digest}" if sent is None else f"{_SENT_PREFIX}{sent}"


def parse_statuses(text: str | None) -> frozenset[InternStatus]:
    """Return the statuses, in a text with commas between them, that a list is filtered by.

    Raises `Invalid` where it names one that there is not, or too many.
    """
    if text is None:
        return frozenset()
    names = text.split(",")
    if len(names) > MOST_STATUSES:
        raise Invalid(f"status: must name at most {MOST_STATUSES} statuses.")
    try:
        return frozenset(_LEGACY_STATUSES.get(name) or InternStatus(name) for name in names)
    except ValueError:
        known = ", ".join(InternStatus)
        raise Invalid(f"status: must be some of {known}, with commas between them.") from None


def encode_cursor(cursor: Cursor) -> str:
    """Return a cursor for a client, which need not understand it."""
    text = f"{iso_utc(cursor.created_at)}|{cursor.id}"
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(text: str | None) -> Cursor | None:
    """Return the cursor that a client sent back; raises `Invalid` where it is none of ours."""
    if text is None:
        return None
    try:
        at, _, intern_id = urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().partition("|")
        found = Cursor(datetime.fromisoformat(at).astimezone(UTC), intern_id)
    except (ValueError, Base64Error, OverflowError):
        found = None
    if found is None or encode_cursor(found) != text:
        raise Invalid("starting_after: must be the next_cursor of an earlier page.")
    return found


def intern_not_found() -> NotFound:
    """Return the refusal that says nothing of what there is."""
    return NotFound("No such intern.")


def conflict(reason: str, message: str, *, retryable: bool = False) -> Conflict:
    """Return a refusal with its reason, as clients read it."""
    return Conflict(message, metadata={"reason": reason, "retryable": retryable})


def name_taken() -> Conflict:
    """Return the refusal of a name."""
    return conflict("name_taken", "Another intern of yours has this name.")


def model_of(own: str | None, preferences: Mapping[str, object]) -> str | None:
    """Return the model that an intern boots with: its own, or its workspace's; None: neither."""
    model = own or preferences.get("default_text_model")
    return model if isinstance(model, str) else None


def no_model() -> Conflict:
    """Return the refusal to run an intern that has no model."""
    message = (
        "The intern has no model, and the workspace has none for those without: give the workspace "
        "one (tollhouse workspaces set default --default-model author/slug), or create the intern "
        "without provisioning it and give it one (tollhouse intern set NAME --model author/slug)."
    )
    return conflict("no_model", message)


def vault_not_attachable() -> Conflict:
    """Return the refusal of a vault that is not to be borrowed."""
    message = "vault_id: no other intern of this workspace has this vault."
    return conflict("vault_not_attachable", message)


def vault_not_created(error: Unavailable) -> TollhouseError:
    """Return the failure of a creation whose vault could not be made."""
    if _needs_operator(error):
        return _misconfigured(error)
    message = "The intern's vault cannot be made now; send the same request again."
    return ServiceUnreachable(message, retry_after=error.retry_after)


def token_not_opened(error: Unavailable) -> TollhouseError:
    """Return the failure where a daemon's token cannot be opened.

    Source: interns API, `GET /interns/{internId}/daemon`, which knows no 503.
    """
    return _misconfigured(error) if _needs_operator(error) else Bug(error.message)


def no_reconciler() -> ServiceUnreachable:
    """Return the refusal where nobody would do what is asked."""
    return ServiceUnreachable("Nobody runs interns at the moment; try again later.")


def changed_concurrently() -> InternBusy:
    """Return the refusal where somebody else was faster."""
    metadata = {"reason": "intern_busy", "retryable": True}
    return InternBusy("The intern was changed in this moment; try again.", metadata=metadata)


def daemon_origin(public_url: str | None, gateway: str, intern_id: str) -> str:
    """Return the origin of an intern's daemon: the gateway's own without a `public_url`.

    `public_url` has `{intern}` in it, for the id of the intern.
    """
    return gateway if public_url is None else public_url.replace("{intern}", intern_id)


def daemon_hostname(public_url: str | None, intern_id: str) -> str | None:
    """Return the host name of an intern's daemon: this machine's own without a `public_url`."""
    return urlsplit(daemon_origin(public_url, _THIS_MACHINE, intern_id)).hostname


def _needs_operator(error: Unavailable) -> bool:
    return error.metadata.get("retryable") is False


def _misconfigured(error: Unavailable) -> Misconfigured:
    metadata = {"reason": "configuration_error", "retryable": False}
    return Misconfigured(error.message, metadata=metadata)
