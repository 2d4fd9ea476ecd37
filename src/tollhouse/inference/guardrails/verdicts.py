"""What guardrails are asked, and what their answers mean. Pure.

named(policies)                     -> the guardrails that must let a request pass
question(subject, request, ...)     -> {"id", "account_id", ..., "texts": ["...", ...]}
read_answer(body)                   <- {"allowed": true} | {"allowed": false, "patterns": [...]}
decide(verdicts, lenient)           -> nothing, or the refusal
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import msgspec

from tollhouse.inference import policy_filter
from tollhouse.inference.guardrails.base import ALLOWED, GuardrailVerdict
from tollhouse.kernel.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tollhouse.identity.types import AccessPolicy, Subject
    from tollhouse.inference.formats.adapter import ClientRequest
    from tollhouse.inference.types import Dialect

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
    subject: Subject, request: ClientRequest, dialect: Dialect, generation_id: str | None
) -> bytes:
    """Return what a guardrail is sent.

    Args:
        subject: Whose request it is.
        request: What is asked of a model.
        dialect: The format in which the client asks it.
        generation_id: The id that the reply will have; None where nothing is generated.

    Raises:
        Invalid: The request holds a number that nobody can read.
    """
    return msgspec.json.encode(
        {
            "id": generation_id,
            "account_id": subject.account_id,
            "workspace_id": subject.workspace_id,
            "endpoint": f"/{dialect}",
            "model": request.model,
            "texts": policy_filter.texts(request.fields),
        }
    )


def read_answer(body: bytes) -> GuardrailVerdict:
    """Return the verdict that a guardrail's answer is.

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

    Args:
        verdicts: By the guardrail's slug, in the order in which policies name them.
        lenient: Slugs of those whose failure lets a request pass.

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
    """Return the refusal of a request that nobody may let pass.

    Args:
        names: The guardrails that do not.
        problem: What is the matter with them; reads on from their names.
    """
    message = f"The request was sent to no provider: the guardrail {', '.join(names)} {problem}."
    metadata = {"error_type": Unavailable.code, "guardrails": list(names)}
    return Unavailable(message, metadata=metadata)
