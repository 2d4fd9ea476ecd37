"""Guardrails: services of the operator that judge a request before any provider gets it.

    policies ── names ──▶ Guardrails ──▶ HttpGuardrail ── question ──▶ the operator's service
                           │◀───────────────── verdict ────────────────────┘
                           └─▶ the request goes on, or Forbidden, or Unavailable

The patterns of policies are checked before, by `policy_filter`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, Protocol, cast

import msgspec
import structlog

from tollhouse.inference import policy_filter
from tollhouse.kernel.errors import Unavailable
from tollhouse.outbound.http.credentials import Credentials
from tollhouse.outbound.http.port import TimeLimits, UpstreamError, UpstreamRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from tollhouse.identity.types import AccessPolicy, Subject
    from tollhouse.inference.formats.adapter import ClientRequest
    from tollhouse.observability.metrics import Metrics
    from tollhouse.outbound.http.port import Upstream
    from tollhouse.settings.sections import GuardrailSettings


OnFailure = Literal["refuse", "allow"]


@dataclass(frozen=True, slots=True)
class GuardrailVerdict:
    """What a guardrail says of a request."""

    outcome: Literal["allowed", "refused", "failed"]
    patterns: tuple[str, ...] = ()
    """What it found in a request that it refused, in its own words; may be empty."""
    reason: str = ""
    """Why there is no verdict, where it failed; holds nothing of request and answer."""


ALLOWED = GuardrailVerdict("allowed")


class Guardrail(Protocol):
    """A configured guardrail."""

    on_failure: OnFailure
    """What becomes of a request on which it gave no verdict."""

    async def ask(self, question: bytes) -> GuardrailVerdict:
        """Return its verdict on a `question` within its time limit; to fail is one, too.

        Cancelling the caller ends the exchange at once.
        """
        ...

    async def close(self) -> None:
        """Give up every connection."""
        ...


_MOST_PATTERNS: Final = 64
_LONGEST_PATTERN: Final = 256
_UNREADABLE: Final = GuardrailVerdict("failed", reason="unreadable answer")


class _Answer(msgspec.Struct):
    allowed: bool
    patterns: object = None


_answer = msgspec.json.Decoder(_Answer)


def named(policies: Sequence[AccessPolicy]) -> Sequence[str]:
    """Return the guardrails that policies name, each once, in the policies' order."""
    return list(dict.fromkeys(name for policy in policies for name in policy.guardrails))


def question(
    subject: Subject, request: ClientRequest, path: str, generation_id: str | None, body: bytes
) -> bytes:
    """Return what a guardrail is sent: {"id", "account_id", ..., "texts": ["...", ...]}.

    The path is the client's, such as `/chat/completions`; the id is that of the reply, None where
    nothing is generated.

    Raises:
        Invalid: The request holds a number that cannot be read.
    """
    return msgspec.json.encode(
        {
            "id": generation_id,
            "account_id": subject.account_id,
            "workspace_id": subject.workspace_id,
            "endpoint": path,
            "model": request.model,
            "texts": policy_filter.texts(request.whole(body)),
        }
    )


def read_answer(body: bytes) -> GuardrailVerdict:
    """Return the verdict of {"allowed": true} or {"allowed": false, "patterns": [...]}.

    Whatever else is wrong with it, an answer that does not allow refuses.
    """
    try:
        answer = _answer.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _UNREADABLE
    return ALLOWED if answer.allowed else GuardrailVerdict("refused", _patterns(answer.patterns))


def _patterns(given: object) -> tuple[str, ...]:
    """Return the texts among them, as many and as long as an error may show."""
    items = cast("list[object]", given) if isinstance(given, list) else []
    texts = [item[:_LONGEST_PATTERN] for item in items if isinstance(item, str) and item]
    return tuple(texts[:_MOST_PATTERNS])


def decide(verdicts: Mapping[str, GuardrailVerdict], lenient: Collection[str]) -> None:
    """Let a request pass that every guardrail lets pass.

    Verdicts come in the order in which policies name the guardrails. The failure of a lenient one
    lets a request pass.

    Raises:
        Forbidden: One refused it, whatever became of the others; the metadata has what all who
            refused it found, or the slug of one who did not say.
        Unavailable: One failed that is not lenient.
    """
    found = [
        pattern
        for name, verdict in verdicts.items()
        if verdict.outcome == "refused"
        for pattern in verdict.patterns or (name,)
    ]
    if found:
        raise policy_filter.refused(list(dict.fromkeys(found)))
    failed = [name for name, verdict in verdicts.items() if verdict.outcome == "failed"]
    strict = [name for name in failed if name not in lenient]
    if strict:
        raise no_verdict(strict, "gave no verdict")


def no_verdict(names: Sequence[str], problem: str) -> Unavailable:
    """Return the refusal of a request on which some guardrails, with that problem, do not judge."""
    message = f"The request was sent to no provider: the guardrail {', '.join(names)} {problem}."
    metadata = {"error_type": Unavailable.code, "guardrails": list(names)}
    return Unavailable(message, metadata=metadata)


_HEADERS: Final = (
    ("content-type", "application/json"),
    ("accept", "application/json"),
    ("accept-encoding", "identity"),
    ("user-agent", "tollhouse"),
)
_LARGEST_ANSWER: Final = 64 * 1024
_SUCCESS: Final = range(200, 300)


@dataclass(kw_only=True, slots=True, repr=False, eq=False)
class HttpGuardrail:
    """A guardrail behind HTTP: one POST, one verdict."""

    url: str
    headers: Sequence[tuple[str, str]]
    """Credentials, and whatever else it wants."""
    seconds: float
    """How long a whole exchange may take."""
    on_failure: OnFailure
    upstream: Upstream
    _credentials: Credentials = field(init=False)

    def __post_init__(self) -> None:
        self._credentials = Credentials(self.headers)

    async def ask(self, question: bytes) -> GuardrailVerdict:
        """Return its verdict; see `Guardrail`."""
        seconds, headers = self.seconds, (*_HEADERS, *self.headers)
        limits = TimeLimits(seconds, seconds, seconds, seconds, total=seconds)
        request = UpstreamRequest("POST", self.url, headers, question, limits)
        try:
            response = await self.upstream.send(request)
            try:
                if response.status not in _SUCCESS:
                    return GuardrailVerdict("failed", reason=f"status {response.status}")
                answer = await response.read(_LARGEST_ANSWER)
                return read_answer(self._credentials.hidden_in_error(answer))
            finally:
                await response.close()
        except UpstreamError as error:
            return GuardrailVerdict("failed", reason=type(error).__name__)

    async def close(self) -> None:
        """Give up every connection."""
        await self.upstream.close()


_log = structlog.get_logger(__name__)


class Guardrails:
    """Asks the guardrails that a caller's policies name, all at once."""

    def __init__(self, guardrails: Mapping[str, Guardrail], metrics: Metrics) -> None:
        self._guardrails = guardrails
        self._metrics = metrics
        self._lenient = {slug for slug, each in guardrails.items() if each.on_failure == "allow"}

    async def check(
        self,
        subject: Subject,
        asks: Callable[[], Awaitable[bytes]],
        generation_id: str | None = None,
    ) -> None:
        """Let a request pass that every guardrail of its caller's policies lets pass.

        `asks` returns the `question` that they are asked.

        Raises:
            Forbidden: A guardrail refused it; the metadata has the patterns that it found.
            Unavailable: One that must let it pass gave no verdict, or is not configured.
            Invalid: It holds a number that cannot be read.
        """
        names = named(subject.policies)
        if not names:
            return
        unknown = [name for name in names if name not in self._guardrails]
        if unknown:
            _log.error("guardrail_not_configured", guardrails=unknown)
            raise no_verdict(unknown, "of a policy is not configured")
        asked = await asks()
        async with asyncio.TaskGroup() as group:
            tasks = {name: group.create_task(self._guardrails[name].ask(asked)) for name in names}
        verdicts = {name: task.result() for name, task in tasks.items()}
        for name, verdict in verdicts.items():
            self._note(name, verdict, generation_id)
        decide(verdicts, self._lenient)

    async def close(self) -> None:
        """Give up every connection."""
        for guardrail in self._guardrails.values():
            await guardrail.close()

    def _note(self, name: str, verdict: GuardrailVerdict, generation_id: str | None) -> None:
        self._metrics.count_verdict(name, verdict.outcome)
        if verdict.outcome == "failed":
            _log.warning(
                "guardrail_failed",
                guardrail=name,
                reason=verdict.reason,
                let_pass=name in self._lenient,
                generation=generation_id,
            )


def build_guardrails(
    guardrails: Sequence[GuardrailSettings], upstream: Callable[[], Upstream], metrics: Metrics
) -> Guardrails:
    """Return the configured guardrails, each with a transport of its own."""
    built = {
        each.slug: HttpGuardrail(
            url=each.url,
            headers=[(name, value.reveal()) for name, value in each.headers.items()],
            seconds=each.timeout_seconds,
            on_failure=each.on_failure,
            upstream=upstream(),
        )
        for each in guardrails
    }
    return Guardrails(built, metrics)
