"""Why a command failed: the error, and a server's refusal as one line that says what to do now."""

from http import HTTPStatus
from typing import Any, ClassVar, Final

from tollhouse.cli.values import object_fields, one_line

WHICH_KEY: Final = (
    "Set TOLLHOUSE_API_KEY to an API key for estimates, batches, interns and secrets, or to a "
    "management key for everything else; on the server's own machine the latter is not needed."
)


class CommandFailed(Exception):
    """The command was understood, and the server refused it or could not be reached.

    Its text is one line that says what is wrong and what to do. What is wrong before anything is
    asked (options, settings, the data folder) is a `StartError` instead. The same may work later if
    it is `retryable`: nobody answered, or the server was busy. The rest is the reply's, as far as
    it says so.
    """

    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        text: str,
        *,
        retryable: bool = False,
        status: int | None = None,
        reason: str | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(text)
        self.retryable = retryable
        self.status = status
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds


class ReplyTruncated(CommandFailed):
    """A reply began and never came to its end: what was asked for may have been done, or not."""


_CHAT_ADVICE: dict[str, str] = {
    "intern_not_ready": "`tollhouse intern show INTERN` tells its state, `tollhouse intern "
    "provision INTERN` has it run.",
    "intern_unreachable": "`tollhouse intern logs INTERN` tells what happened.",
    "stream_severed": "What it did until then stays, and nothing was sent again: the next prompt "
    "of this session goes on.",
    "interaction_not_pending": "The question had waited too long, so its run is over.",
}
"""What to do, by the reason of an error of the chat."""
_FORBIDDEN: Final = {
    "regional hostname": "Name the server's other address: --base-url, or TOLLHOUSE_BASE_URL.",
    "use an API key": "`tollhouse keys create NAME` makes one.",
}
"""What a 403 says -> what to do; another key where it says something else."""
_NOUNS = {
    **{noun: noun for noun in ("accounts", "keys", "users", "workspaces", "models")},
    "batches": "batch",
}
"""What has a list, and what its commands call it."""


def refusal_message(status: int, reply: Any, *, path: str) -> str:  # noqa: ANN401 - JSON
    """Return the line for a refused request, of its reply's JSON; None stands for another reply."""
    said = _message(reply)
    if said is None:
        return (
            f"the server answered with status {status} and not like a Tollhouse server: "
            "check the address"
        )
    own = _vault_advice(status, said) if path.startswith("/vault/") else ""
    reason = error_reason(reply)
    advice = own or chat_advice(reason) or _remedy(reply) or _advice(status, said, path)
    return " ".join(part for part in (one_line(said), advice) if part)


def error_reason(reply: Any) -> str | None:  # noqa: ANN401 - JSON is anything
    """Return an error's own word for what is wrong; None where it has none."""
    error = object_fields(object_fields(reply).get("error"))
    reason = object_fields(error.get("metadata")).get("reason")
    return reason if isinstance(reason, str) else None


def chat_advice(reason: str | None) -> str:
    """Return what to do about an error of a chat with an intern; nothing where nobody knows."""
    return _CHAT_ADVICE.get(reason or "", "")


def _remedy(reply: Any) -> str:  # noqa: ANN401 - JSON is anything
    """Return what a refusal for want of credits says itself of what helps."""
    metadata = object_fields(object_fields(object_fields(reply).get("error")).get("metadata"))
    hint = metadata.get("remedy_hint")
    return one_line(hint) if isinstance(hint, str) else ""


def _message(reply: Any) -> str | None:  # noqa: ANN401 - JSON is anything
    message = object_fields(object_fields(reply).get("error")).get("message")
    if not isinstance(message, str) or not message:
        return None
    return message if message.endswith((".", "!", "?")) else f"{message}."


def _advice(status: int, said: str, path: str) -> str:
    noun = path.strip("/").partition("/")[0]
    if status == HTTPStatus.BAD_REQUEST and "account_id" in said:
        return (
            "Add --account NAME, or choose one with `tollhouse accounts use NAME`; "
            "`tollhouse accounts list` shows them."
        )
    if status == HTTPStatus.NOT_FOUND and noun in _NOUNS:
        return f"`tollhouse {_NOUNS[noun]} list` shows what there is."
    if status == HTTPStatus.PAYMENT_REQUIRED and path.startswith("/batches/"):
        return "Nothing is lost, and nothing is run again: add them and repeat the command."
    if status == HTTPStatus.FORBIDDEN:
        return next((advice for word, advice in _FORBIDDEN.items() if word in said), WHICH_KEY)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "The server's log says more: `tollhouse logs` on its machine."
    return WHICH_KEY if status == HTTPStatus.UNAUTHORIZED else ""


def _vault_advice(status: int, said: str) -> str:
    if status == HTTPStatus.NOT_FOUND and said == "Not found.":
        return (
            "Either the workspace has no vault (an operator's `tollhouse accounts set ID "
            "--programme on` gives it one), or this is an intern's own key, which sees its intern "
            "alone."
        )
    if status == HTTPStatus.NOT_FOUND and "no secret" in said:
        return "`tollhouse vault list` shows the workspace's, with --intern ID an intern's."
    if status == HTTPStatus.SERVICE_UNAVAILABLE and "switched off" in said:
        return (
            "`--vault-writes on` of `tollhouse accounts set` and `tollhouse workspaces set` does."
        )
    return ""
