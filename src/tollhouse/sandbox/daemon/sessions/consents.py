"""What people are asked, and what they have consented to, kept in memory. Pure.

The log is no witness of it: whatever runs in the workspace may write there. So a question is shown
as it was asked, an answer counts for that alone, and the agent gets with each permission a digest
of what it was given for. Of what a daemon of before has asked nothing is known: the log tells what
it was, no answer to it holds for always, and the agent asks again before it does anything.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast

from tollhouse.sandbox.daemon.sessions.questions import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tollhouse.sandbox.daemon.sessions.questions import Answer
    from tollhouse.sandbox.daemon.sessions.values import Event, Question, Run

_SAFE_MODE: Final = "manual"
"""Of a run whose mode only the log knows."""
_FRAME: Final = ("run", "interaction", "expires_at")
"""What an event of a question has beside the question."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A run that waits, or goes on with answers."""

    mode: str
    questions: Mapping[str, Mapping[str, Any]] = field(repr=False)
    """As the agent asks them, by their ids."""
    allowed: dict[str, str] = field(default_factory=dict[str, str])
    """Digests of what was allowed, by the calls that had asked."""


class Consents:
    """Of all runs and sessions."""

    def __init__(self) -> None:
        """Nobody was asked."""
        self._runs: dict[str, _Waiting] = {}
        self._verdicts: dict[str, dict[str, str]] = {}

    def wait(self, run: Run, questions: Mapping[str, Mapping[str, Any]]) -> None:
        """Remember a run that waits, and for what.

        Args:
            run: With its mode.
            questions: As the agent asks them, by their ids.
        """
        self._runs[run.id] = _Waiting(run.mode, dict(questions))

    def forget(self, run: str) -> None:
        """Forget a run, which has ended."""
        self._runs.pop(run, None)

    def mode(self, question: Question) -> str:
        """Return how the run of a question goes on."""
        asked = self._asked(question.run, question.id)
        return _SAFE_MODE if asked is None else self._runs[question.run].mode

    def body(self, question: Question) -> Mapping[str, Any]:
        """Return what a question asks."""
        return self._asked(question.run, question.id) or question.body

    def told(self, event: Event) -> Event:
        """Return an event as it was; the log may tell another question than the one that waits."""
        if event.kind != "question":
            return event
        try:
            found = cast("dict[str, Any]", json.loads(event.data))
            frame = {name: found[name] for name in _FRAME}
        except (ValueError, TypeError, KeyError, RecursionError):
            return event
        asked = self._asked(frame["run"], frame["interaction"])
        if asked is None:
            return event
        data = json.dumps({**frame, **shown(asked)}, ensure_ascii=False, separators=(",", ":"))
        return replace(event, data=data)

    def verdicts(self, session: str) -> Mapping[str, str]:
        """Return what holds for the rest of a session: `allow` or `reject`, by scope."""
        return self._verdicts.get(session, {})

    def verdicts_with(self, session: str, question: Question, answer: Answer) -> Mapping[str, str]:
        """Return what will hold once a question has its answer."""
        held = self.verdicts(session)
        if answer.verdict is None or self._asked(question.run, question.id) is None:
            return held
        scope, word = answer.verdict
        return {**held, scope: word}

    def answer(self, session: str, question: Question, answer: Answer) -> None:
        """Remember an answer."""
        asked = self._asked(question.run, question.id)
        if asked is None:
            return
        self._verdicts[session] = dict(self.verdicts_with(session, question, answer))
        if answer.order.get("permission"):
            self._runs[question.run].allowed[asked["call"]] = asked["permission"]["digest"]

    def vouched(self, run: str, answers: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return answers as the agent gets them: with the digest of what each has allowed."""
        allowed = self._runs[run].allowed if run in self._runs else {}
        return [
            {**answer, "digest": allowed.get(str(answer.get("call")), "")} for answer in answers
        ]

    def _asked(self, run: object, question: object) -> Mapping[str, Any] | None:
        waiting = self._runs.get(str(run))
        return None if waiting is None else waiting.questions.get(str(question))
