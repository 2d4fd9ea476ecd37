"""The body of a batch, made from a file: checked as a whole, then sent piece by piece.

    JSON Lines                    {"endpoint": ..., "model": ..., "requests":[ line , line ]}
    a whole batch as JSON         as it is

The name of the first field says which of the two a file is. The file is read twice, to check it and
to send it, so standard input or a pipe is first copied to a temporary file. A line is one of

    {"custom_id": "a", "body": {...}}
    {"custom_id": "a", "method": "POST", "url": "/v1/responses", "body": {...}}     OpenAI's

and a mistake in it is told as `FILE:21: custom_id 'a' is taken by line 3`.
"""

from __future__ import annotations

import io
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec

from tollhouse.batches.ingest.splitter import MalformedBatch, Splitter, SubmittedItem, TooLarge
from tollhouse.cli.errors import CommandFailed
from tollhouse.kernel.errors import StartError, parse_validation_error

STANDARD_INPUT: Final = "-"
PIECE: Final = 256 * 1024
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_PIECE: Final = 64 * 1024
_LARGEST_ITEM: Final = 64 * 1024 * 1024
"""The server knows how large an item may be; this bounds our own memory."""
_FIRST_FIELD: Final = re.compile(rb'\s*\{\s*"([^"\\]{0,64})"')
_WHOLE: Final = frozenset(
    (b"endpoint", b"model", b"requests", b"completion_window", b"provider", b"callback_url")
)
_END: Final = b"]}"


@contextmanager
def open_requests(name: str) -> Generator[BinaryIO]:
    """Open a file so that it can be read twice; `-` is standard input."""
    try:
        is_piped = name == STANDARD_INPUT
        with nullcontext(sys.stdin.buffer) if is_piped else Path(name).open("rb") as stream:
            if not is_piped and stream.seekable():
                yield stream
                return
            with tempfile.TemporaryFile() as kept:
                shutil.copyfileobj(stream, kept, PIECE)
                yield kept
    except OSError as error:
        raise StartError(f"{display_name(name)} cannot be read ({error.strerror})") from None


def display_name(name: str) -> str:
    """Return what a file is called in messages."""
    return "standard input" if name == STANDARD_INPUT else name


def numbered_lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not empty, with their numbers counted from 1."""
    _rewind(file)
    for number, line in enumerate(file, 1):
        if text := line.strip():
            yield number, text


def read_pieces(file: BinaryIO) -> Iterator[bytes]:
    """Yield all of it, piece by piece."""
    _rewind(file)
    while piece := file.read(PIECE):
        yield piece


def _rewind(file: BinaryIO) -> int:
    """Go to where the text begins: behind the mark that some editors put there."""
    file.seek(0)
    mark = file.read(len(_BYTE_ORDER_MARK))
    return file.seek(len(mark) if mark == _BYTE_ORDER_MARK else 0)


@dataclass(frozen=True, slots=True)
class BatchUpload:
    """A body that is ready to be sent."""

    size: int
    """In bytes."""
    pieces: Callable[[], Iterator[bytes]]
    """All of it; raises CommandFailed where the file is not any more what it was."""


def read_upload(file: BinaryIO, name: str, options: BatchOptions) -> BatchUpload:
    """Check a file of requests, which stays open until all is sent.

    StartError where it is no batch or contradicts the command line, a line for each mistake.
    """
    start = next(read_pieces(file), b"")
    if start.lstrip().startswith(b"["):
        raise StartError(
            f"{display_name(name)} is a JSON array: write one request a line, without brackets and "
            "commas; jq -c '.[]' does it"
        )
    field = _FIRST_FIELD.match(start)
    if field is not None and field[1] in _WHOLE:
        return _whole(file, display_name(name), options)
    return _of_lines(file, display_name(name), options)


def _of_lines(file: BinaryIO, name: str, options: BatchOptions) -> BatchUpload:
    found = validate_lines(name, numbered_lines(file), options)
    head = msgspec.json.encode(options.envelope(found)).removesuffix(b"}") + b',"requests":['
    size = len(head) + found.size + found.count - 1 + len(_END)
    return BatchUpload(size, lambda: _exactly(size, _gathered(_body(head, file, name)), name))


def _body(head: bytes, file: BinaryIO, name: str) -> Iterator[bytes]:
    before = head
    try:
        for _, text in numbered_lines(file):
            yield before
            yield parse_line(text).item
            before = b","
    except InvalidLine:
        raise _changed(name) from None
    yield _END


def _whole(file: BinaryIO, name: str, options: BatchOptions) -> BatchUpload:
    if options != BatchOptions():
        raise StartError(
            f"{name} is a whole batch, which says its model, endpoint and provider itself: leave "
            "out --model, --endpoint, --provider and --no-fallbacks"
        )
    try:
        _check_whole(read_pieces(file))
    except (MalformedBatch, TooLarge) as error:
        raise StartError(
            f"{name} is taken for a whole batch, since it begins with a field of one: {error}. "
            'In JSON Lines each line is {"custom_id": ..., "body": {...}}'
        ) from None
    begin = _rewind(file)
    size = file.seek(0, io.SEEK_END) - begin
    return BatchUpload(size, lambda: _exactly(size, read_pieces(file), name))


def _check_whole(pieces: Iterable[bytes]) -> None:
    """Read a whole batch as the server will."""
    splitter = Splitter(largest_body=_LARGEST_ITEM)
    places: dict[str, int] = {}
    for piece in pieces:
        _check_ids(splitter.feed(piece), places)
    _check_ids(splitter.end(), places)
    if not places:
        raise MalformedBatch("requests: has to have at least one item")


def _check_ids(items: Iterable[SubmittedItem], places: dict[str, int]) -> None:
    for item in items:
        place = f"requests[{item.number}].custom_id"
        if not item.custom_id:
            raise MalformedBatch(f"{place}: is empty")
        first = places.setdefault(item.custom_id, item.number)
        if first != item.number:
            raise MalformedBatch(f"{place}: the same as requests[{first}]'s")


def _gathered(texts: Iterable[bytes]) -> Iterator[bytes]:
    """Join small texts, so that a request of 50,000 lines is not sent in 100,000 pieces."""
    gathered = bytearray()
    for text in texts:
        gathered += text
        if len(gathered) >= _PIECE:
            yield bytes(gathered)
            gathered.clear()
    yield bytes(gathered)


def _exactly(size: int, pieces: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Pass pieces on, and fail unless they are as large together as was announced."""
    sent = 0
    for piece in pieces:
        sent += len(piece)
        if sent > size:
            raise _changed(name)
        yield piece
    if sent != size:
        raise _changed(name)


def _changed(name: str) -> CommandFailed:
    return CommandFailed(f"{name} changed while it was sent: no batch was made, try again")


# As in `batches.types`, whose import loads all the layers below it.
ENDPOINTS: Final = ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/embeddings")
DEFAULT_ENDPOINT: Final = ENDPOINTS[0]
_VERSION: Final = "/v1/"
_MALFORMED: Final = "JSON is malformed: "
MOST_MISTAKES: Final = 10
"""How many are shown at once."""
_SHOWN: Final = 64
_TAKEN_OUT: Final = "; jq -c 'del(.body.model)' takes it out of all lines"
_MODEL_SUFFIX: Final = ":batch"
"""What may follow a model's name, and means the same model."""


def known_endpoint(text: str) -> str | None:
    """Return an endpoint as the API writes it, from `messages` or `/v1/messages`; None for none."""
    path = _VERSION + text.strip().strip("/").removeprefix(_VERSION.strip("/") + "/")
    return path if path in ENDPOINTS else None


def endpoint_option(text: str) -> str:
    """Return what `--endpoint` means; StartError where no batch can be for it."""
    found = known_endpoint(text)
    if found is None:
        raise StartError(f"--endpoint: {text!r} is none of {endpoint_names()}")
    return found


def endpoint_names() -> str:
    """Return the endpoints as people write them."""
    return ", ".join(each.removeprefix(_VERSION) for each in ENDPOINTS)


class InvalidLine(Exception):
    """The line is no request; the text says why."""


class RequestLine(NamedTuple):
    """One request of a batch."""

    custom_id: str
    body: msgspec.Raw
    endpoint: str | None
    """Its `url`, where it has one."""
    model: str | None
    """Its `body.model`, where it has one."""

    @property
    def item(self) -> bytes:
        """What is sent for it."""
        return _encode({"custom_id": self.custom_id, "body": self.body})


class _WireLine(msgspec.Struct):
    custom_id: str | None = None
    body: msgspec.Raw = msgspec.Raw()
    method: str | None = None
    url: str | None = None


class _BodyModel(msgspec.Struct):
    model: Any = None


_encode = msgspec.json.Encoder().encode
_read_line = msgspec.json.Decoder(_WireLine).decode
_read_body = msgspec.json.Decoder(_BodyModel).decode


def parse_line(text: bytes) -> RequestLine:
    """Return what a line says; InvalidLine if it is no request."""
    found = _decoded(text)
    if not found.custom_id:
        raise InvalidLine(
            "custom_id is missing" if found.custom_id is None else "custom_id is empty"
        )
    begin = bytes(found.body)[:1]
    if not begin:
        raise InvalidLine("body is missing")
    if begin != b"{":
        raise InvalidLine("body has to be an object, the request itself")
    if found.method not in {None, "POST"}:
        raise InvalidLine(f"method is {found.method!r}: every request of a batch is a POST")
    return RequestLine(found.custom_id, found.body, _endpoint(found.url), _model(found.body))


def _decoded(text: bytes) -> _WireLine:
    try:
        text.decode()
        return _read_line(text)
    except UnicodeDecodeError as error:
        raise InvalidLine(f"not UTF-8 at its byte {error.start}") from None
    except msgspec.ValidationError as error:
        path, _ = parse_validation_error(error)
        what = f"{path[1:]} has to be a text" if path else "not an object with custom_id and body"
        raise InvalidLine(what) from None
    except msgspec.DecodeError as error:
        raise InvalidLine(f"not JSON: {str(error).removeprefix(_MALFORMED)}") from None
    except RecursionError:
        raise InvalidLine("nested too deeply") from None


def _endpoint(url: str | None) -> str | None:
    if url is None:
        return None
    found = known_endpoint(url)
    if found is None:
        raise InvalidLine(f"url is {url!r}, none of {endpoint_names()}")
    return found


def _model(body: msgspec.Raw) -> str | None:
    model = _read_body(body).model
    if model is None or isinstance(model, str):
        return model
    raise InvalidLine("body.model has to be a text")


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """What the command line says about a batch."""

    model: str | None = None
    endpoint: str | None = None
    """As the API writes it."""
    providers: Sequence[str] = ()
    """Those that may be asked; all of them where there is none."""
    fallbacks: bool = True

    def envelope(self, found: LinesSummary) -> dict[str, object]:
        """Return the batch's fields beside its requests."""
        fields: dict[str, object] = {"endpoint": found.endpoint, "model": found.model}
        provider: dict[str, object] = {"only": list(self.providers)} if self.providers else {}
        if not self.fallbacks:
            provider["allow_fallbacks"] = False
        return {**fields, "provider": provider} if provider else fields


@dataclass(frozen=True, slots=True)
class LinesSummary:
    """What the lines of a file agree on."""

    model: str
    endpoint: str
    count: int
    size: int
    """Bytes of all items as they are sent, without what stands between them."""


def validate_lines(
    name: str, lines: Iterable[tuple[int, bytes]], options: BatchOptions
) -> LinesSummary:
    """Check all lines of a file: those that are not empty, with their numbers.

    StartError where there is none, or they are no batch; a text line for each mistake.
    """
    validator = _LineValidator(options)
    mistakes: list[str] = []
    for number, text in lines:
        try:
            validator.take(number, parse_line(text))
        except InvalidLine as error:
            mistakes.append(f"{name}:{number}: {error}")
        if len(mistakes) == MOST_MISTAKES:
            mistakes.append(f"{name}: there may be more")
            break
    if mistakes:
        raise StartError("\n".join(mistakes))
    return validator.result(name)


class _LineValidator:
    # Compares each line with those before it.

    def __init__(self, options: BatchOptions) -> None:
        self._model = None if options.model is None else (options.model, "--model says")
        self._endpoint = None if options.endpoint is None else (options.endpoint, "--endpoint says")
        self._model_is_given = options.model is not None
        self._lines: dict[str, int] = {}
        """The number of each custom_id's line."""
        self._size = 0

    def take(self, number: int, line: RequestLine) -> None:
        first = self._lines.setdefault(line.custom_id, number)
        if first != number:
            raise InvalidLine(f"custom_id {line.custom_id[:_SHOWN]!r} is taken by line {first}")
        self._check_endpoint(number, line.endpoint)
        self._check_model(number, line.model)
        self._size += len(line.item)

    def result(self, name: str) -> LinesSummary:
        if not self._lines or self._model is None:
            example = '{"custom_id": "1", "body": {...}}'
            raise StartError(f"{name} is empty: write a line like {example}")
        endpoint = DEFAULT_ENDPOINT if self._endpoint is None else self._endpoint[0]
        return LinesSummary(self._model[0], endpoint, len(self._lines), self._size)

    def _check_endpoint(self, number: int, endpoint: str | None) -> None:
        if endpoint is None:
            return
        if self._endpoint is None:
            self._endpoint = endpoint, f"line {number} has"
        expected, who = self._endpoint
        if endpoint != expected:
            raise InvalidLine(f"url is {endpoint}, {who} {expected}: a batch has one endpoint")

    def _check_model(self, number: int, model: str | None) -> None:
        if model is None:
            if not self._model_is_given:
                raise InvalidLine("body.model is missing: give it, or name the model with --model")
            return
        if self._model is None:
            self._model = model, f"line {number} has"
        expected, who = self._model
        if model.removesuffix(_MODEL_SUFFIX) != expected.removesuffix(_MODEL_SUFFIX):
            advice = _TAKEN_OUT if self._model_is_given else ""
            raise InvalidLine(
                f"body.model is {model!r}, {who} {expected!r}: a batch has one model{advice}"
            )
