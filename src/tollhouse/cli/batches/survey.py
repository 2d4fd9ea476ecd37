"""The first reading of a file of requests: whether its lines make one batch, and which. Pure.

    FILE:17: custom_id is missing
    FILE:21: custom_id 'a' is taken by line 3

Every line is looked at before anything is sent, so a mistake costs no upload.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tollhouse.cli.batches.endpoints import DEFAULT
from tollhouse.cli.batches.lines import BadLine, read_line
from tollhouse.kernel.start import StartError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tollhouse.cli.batches.lines import Line

MOST_MISTAKES: Final = 10
"""How many are shown at once."""
_SHOWN: Final = 64
_TAKEN_OUT: Final = "; jq -c 'del(.body.model)' takes it out of all lines"
_MODEL_SUFFIX: Final = ":batch"
"""What may follow a model's name, and means the same model."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the command line says about a batch."""

    model: str | None = None
    endpoint: str | None = None
    """As the API writes it."""
    providers: Sequence[str] = ()
    """Those that may be asked; all of them where there is none."""
    fallbacks: bool = True

    def envelope(self, found: Survey) -> dict[str, object]:
        """Return the batch's fields beside its requests."""
        wish: dict[str, object] = {}
        if self.providers:
            wish["only"] = list(self.providers)
        if not self.fallbacks:
            wish["allow_fallbacks"] = False
        named: dict[str, object] = {"endpoint": found.endpoint, "model": found.model}
        return {**named, "provider": wish} if wish else named


@dataclass(frozen=True, slots=True)
class Survey:
    """What the lines of a file agree on."""

    model: str
    endpoint: str
    count: int
    size: int
    """Bytes of all items as they are sent, without what stands between them."""


def survey(name: str, lines: Iterable[tuple[int, bytes]], wishes: Wishes) -> Survey:
    """Read all lines of a file.

    Args:
        name: What the file is called, for messages.
        lines: Those that are not empty, with their numbers.
        wishes: What the command line says.

    Raises:
        StartError: There is none, or they are no batch; a text line for each mistake.
    """
    surveyor = _Surveyor(wishes)
    mistakes: list[str] = []
    for number, text in lines:
        try:
            surveyor.take(number, read_line(text))
        except BadLine as error:
            mistakes.append(f"{name}:{number}: {error}")
        if len(mistakes) == MOST_MISTAKES:
            mistakes.append(f"{name}: there may be more")
            break
    if mistakes:
        raise StartError("\n".join(mistakes))
    return surveyor.result(name)


class _Surveyor:
    """Compares each line with those before it."""

    def __init__(self, wishes: Wishes) -> None:
        self._model = None if wishes.model is None else (wishes.model, "--model says")
        self._endpoint = None if wishes.endpoint is None else (wishes.endpoint, "--endpoint says")
        self._model_is_given = wishes.model is not None
        self._lines: dict[str, int] = {}
        """The number of each custom_id's line."""
        self._size = 0

    def take(self, number: int, line: Line) -> None:
        """Take the next line.

        Raises:
            BadLine: It does not go with those before it.
        """
        first = self._lines.setdefault(line.custom_id, number)
        if first != number:
            raise BadLine(f"custom_id {line.custom_id[:_SHOWN]!r} is taken by line {first}")
        self._check_endpoint(number, line.endpoint)
        self._check_model(number, line.model)
        self._size += len(line.item)

    def result(self, name: str) -> Survey:
        """Return what all lines agree on.

        Raises:
            StartError: There was none.
        """
        if not self._lines or self._model is None:
            message = f"{name} is empty: write a line like "
            example = '{"custom_id": "1", "body": {...}}'
            raise StartError(message + example)
        endpoint = DEFAULT if self._endpoint is None else self._endpoint[0]
        return Survey(self._model[0], endpoint, len(self._lines), self._size)

    def _check_endpoint(self, number: int, endpoint: str | None) -> None:
        if endpoint is None:
            return
        if self._endpoint is None:
            self._endpoint = endpoint, f"line {number} has"
        expected, who = self._endpoint
        if endpoint != expected:
            raise BadLine(f"url is {endpoint}, {who} {expected}: a batch has one endpoint")

    def _check_model(self, number: int, model: str | None) -> None:
        if model is None:
            if not self._model_is_given:
                raise BadLine("body.model is missing: give it, or name the model with --model")
            return
        if self._model is None:
            self._model = model, f"line {number} has"
        expected, who = self._model
        if _base(model) != _base(expected):
            advice = _TAKEN_OUT if self._model_is_given else ""
            raise BadLine(
                f"body.model is {model!r}, {who} {expected!r}: a batch has one model{advice}"
            )


def _base(model: str) -> str:
    return model.removesuffix(_MODEL_SUFFIX)
