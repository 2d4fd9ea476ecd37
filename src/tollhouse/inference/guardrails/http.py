"""A guardrail behind HTTP: one POST, one verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tollhouse.inference.guardrails.base import GuardrailVerdict
from tollhouse.inference.guardrails.verdicts import read_answer
from tollhouse.inference.upstream.credentials import Credentials
from tollhouse.inference.upstream.errors import UpstreamError
from tollhouse.inference.upstream.port import TimeLimits, UpstreamRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.inference.guardrails.base import OnFailure
    from tollhouse.inference.upstream.port import Upstream

_LARGEST_ANSWER: Final = 64 * 1024
_SUCCESS: Final = range(200, 300)


class HttpGuardrail:
    """Fulfils the `Guardrail` port."""

    def __init__(
        self,
        *,
        url: str,
        headers: Sequence[tuple[str, str]],
        seconds: float,
        on_failure: OnFailure,
        upstream: Upstream,
    ) -> None:
        """Prepare what is the same for every question.

        Args:
            url: Where it is asked.
            headers: Credentials, and whatever else it wants.
            seconds: How long a whole exchange may take.
            on_failure: What becomes of a request on which it gave no verdict.
            upstream: Reaches it.
        """
        self.on_failure: OnFailure = on_failure
        self._url = url
        self._headers = (
            ("content-type", "application/json"),
            ("accept", "application/json"),
            ("accept-encoding", "identity"),
            ("user-agent", "tollhouse"),
            *headers,
        )
        self._limits = TimeLimits(seconds, seconds, seconds, seconds, total=seconds)
        self._upstream = upstream
        self._credentials = Credentials(headers)

    async def ask(self, question: bytes) -> GuardrailVerdict:
        """Return its verdict; see the port."""
        request = UpstreamRequest("POST", self._url, self._headers, question, self._limits)
        try:
            response = await self._upstream.send(request)
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
        await self._upstream.close()
