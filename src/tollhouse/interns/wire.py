"""The wire models of interns.

Source: the public gateway's interns; the fields that published clients parse.
"""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.config import JsonDict

from tollhouse.interns import policy
from tollhouse.interns.lifecycle import progress
from tollhouse.interns.types import CreateIntern, Intern, InternStatus
from tollhouse.kernel.errors import Invalid
from tollhouse.kernel.secret import Secret
from tollhouse.kernel.wire import STORABLE, Omittable, RequestModel, ResponseModel, SentTime

_NAME: JsonDict = {
    "minLength": policy.SHORTEST_NAME,
    "maxLength": policy.LONGEST_NAME,
    "pattern": policy.NAME,
}
_MODEL: JsonDict = {"minLength": 1, "maxLength": policy.LONGEST_MODEL, "pattern": policy.MODEL}
_UUID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"

InternName = Annotated[str, Field(json_schema_extra=_NAME)]
Description = Annotated[str, Field(max_length=policy.LONGEST_DESCRIPTION), STORABLE]
Instructions = Annotated[str, Field(max_length=policy.LONGEST_INSTRUCTIONS), STORABLE]
Model = Annotated[str, Field(json_schema_extra=_MODEL)]
Uuid = Annotated[str, Field(pattern=_UUID, json_schema_extra={"format": "uuid"})]


class CreateBody(RequestModel):
    """An intern to make."""

    name: InternName
    """Unique among the caller's interns in the workspace."""
    description: Description | None = None
    """Free text."""
    instructions: Instructions | None = None
    """What it boots with and keeps to."""
    provision: bool = False
    """Whether it is to run at once."""
    vault_id: Uuid | None = None
    """Another intern's vault in the workspace, to be borrowed."""
    workspace_id: Uuid | None = None
    """The key's workspace, where it is named at all."""
    chat: Literal["slack"] | None = None
    """A chat service in which it is to be installed before it can run. Ours."""

    def wanted(self) -> CreateIntern:
        """Return what is asked for; raises `Invalid` where the name is none."""
        name = policy.check_name(self.name)
        if self.chat is not None and self.provision:
            raise Invalid("provision: an intern of a chat service runs once it is installed there.")
        vault_id = None if self.vault_id is None else self.vault_id.lower()
        return CreateIntern(
            name, self.description, self.instructions, vault_id, self.provision, self.chat
        )


class PatchBody(RequestModel):
    """What to change of an intern; what is left out stays."""

    name: Omittable[InternName] = None
    """Unique among the creator's interns in the workspace."""
    description: Description | None = None
    """Free text; null clears it."""
    instructions: Instructions | None = None
    """What it boots with from the next time on; null clears it."""
    model: Model | None = None
    """The model, `author/slug`, from its next boot on; null for the workspace's default."""

    def facts(self) -> dict[str, object]:
        """Return what is to be changed; raises `Invalid` where the name or the model is none."""
        if self.name is not None:
            policy.check_name(self.name)
        if self.model is not None:
            policy.check_model(self.model)
        return self.model_dump(exclude_unset=True)


ChatPlace = Annotated[str, Field(pattern=r"^[UWCDG][A-Z0-9]{2,20}$")]
Token = Annotated[str, Field(min_length=1, max_length=512)]


class InstallBody(RequestModel):
    """An intern's app in a chat service."""

    service: Literal["slack"] = "slack"
    """Which service."""
    bot_token: Token = Field(repr=False)
    """The bot's token, `xoxb-`; a secret."""
    app_token: Token | None = Field(default=None, repr=False)
    """The app-level token of Socket Mode, `xapp-`; a secret."""
    signing_secret: Token | None = Field(default=None, repr=False)
    """What the service signs requests with, where it sends events over HTTP; a secret."""
    allowed: list[ChatPlace] = Field(min_length=1, max_length=1_000)
    """Ids of the users and channels that may talk to it, and answer what it asks."""
    approval_mode: Literal["manual", "self-drive"] = "manual"
    """Whether it asks before it acts."""

    def tokens(self) -> dict[str, Secret]:
        """Return its secrets, by their names."""
        sent = {
            "bot_token": self.bot_token,
            "app_token": self.app_token,
            "signing_secret": self.signing_secret,
        }
        return {name: Secret(value) for name, value in sent.items() if value is not None}


class DeleteBody(RequestModel):
    """How to delete an intern."""

    acknowledge_workspace_loss: bool = False
    """Whether its files may be lost, where they could not be archived."""


class NoBody(RequestModel):
    """Nothing may be sent, or an empty object."""


class ProgressReply(ResponseModel):
    """The step of a boot that is under way."""

    step_label: str
    """What the boot does now, in words for people."""
    step_number: int
    """Counted from 1."""
    total_steps: int
    """How many there are."""


class InternReply(ResponseModel):
    """An intern."""

    id: Uuid
    """The intern's UUID, which paths take."""
    name: str
    """What people call it."""
    description: str | None
    """Free text."""
    instructions: str | None
    """What it boots with."""
    model: str | None
    """The model as configured; null for the workspace's default."""
    status: InternStatus
    """What it is seen to be."""
    hostname: str | None
    """Where its daemon is reached, 127.0.0.1 without an address of its own; null until it was first
    provisioned."""
    progress: ProgressReply | None
    """The step under way; null once it has settled."""
    last_failure_message: str | None
    """Why the last attempt failed, where it did."""
    vault_id: Uuid | None
    """Its own vault; null before there is one."""
    attached_vault_id: Uuid | None
    """The vault that it borrows."""
    workspace_id: Uuid
    """UUID of the workspace to which it belongs."""
    created_at: SentTime
    """When it was made."""
    updated_at: SentTime
    """When something of this last changed."""


class InternPage(ResponseModel):
    """Part of a list."""

    # A field with a default may be left out here.
    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    data: list[InternReply]
    """Newest first."""
    has_more: bool
    """Whether there are older ones."""
    next_cursor: str | None = None
    """What the next page starts after; left out with the last one."""


class Provisioning(ResponseModel):
    """The answer to `provision`."""

    provisioning: Literal[True] = True
    """It was accepted."""


class Suspended(ResponseModel):
    """The answer to `suspend`."""

    suspended: Literal[True] = True
    """It does not run any more, and its files are safe."""


class Deleting(ResponseModel):
    """The answer to `DELETE`."""

    deleting: Literal[True] = True
    """It was accepted."""


class DaemonReply(ResponseModel):
    """How a running intern's daemon is reached."""

    origin: str
    """Scheme, host and perhaps a port."""
    token: str
    """What the daemon wants as a bearer token; a secret."""


class LogLine(ResponseModel):
    """Something that happened."""

    at: str
    """When: ISO 8601, in UTC."""
    text: str
    """What happened, in words for people."""


class LogPage(ResponseModel):
    """The end of a log."""

    data: list[LogLine]
    """The oldest first."""


def intern_reply(intern: Intern, hostname: str | None) -> InternReply:
    """Return an intern as callers see it, at the host name by which they reach it."""
    step = progress(intern.state, intern.step)
    shown = None
    if step is not None:
        shown = ProgressReply(
            step_label=step.label, step_number=step.number, total_steps=step.total
        )
    return InternReply(
        id=intern.id,
        name=intern.name,
        description=intern.description,
        instructions=intern.instructions,
        model=intern.model,
        status=intern.state.status,
        hostname=hostname,
        progress=shown,
        last_failure_message=intern.last_failure_message,
        vault_id=intern.vault_id,
        attached_vault_id=intern.attached_vault_id,
        workspace_id=intern.workspace_id,
        created_at=intern.created_at,
        updated_at=intern.updated_at,
    )
