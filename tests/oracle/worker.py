"""Answers inputs: JSON lines from standard input to standard output, one for one.

Another checkout's interpreter runs this file, so that it imports nothing beside that checkout's
seam. An answer has a `status`: ok, refused, malformed, error (which the provider reported), or
crash for whatever the formats do not promise to raise; and what came until then.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from tests.oracle import seam
from tollhouse.kernel import errors

Input = Mapping[str, Any]
Answer = dict[str, Any]
MOST_SECONDS = 20
"""For one input: more is a loop, which is a crash."""


def data_of(text: str) -> bytes:
    """Return the bytes of a text in an input; they need not be UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def text_of(data: bytes) -> str:
    """Return bytes as the text that `data_of` reads."""
    return data.decode("utf-8", "surrogateescape")


def answer(asked: Input) -> Answer:
    """Return what this version says of an input."""
    said: Answer = {}
    _note(said, lambda: _ANSWERS[asked["op"]](asked, said))
    apart = said.pop("without_content", None)
    if apart not in (None, said) and said["status"] != "refused":
        said["without_content"] = apart
    return said


def _note(said: Answer, run: Callable[[], None]) -> None:
    """Run a part of an answer, and note how it ended."""
    try:
        run()
    except seam.Refused as error:
        said |= {"status": "refused", "text": error.message}
    except seam.Malformed as error:
        said |= {"status": "malformed", "text": str(error)}
    except seam.ErrorReported as error:
        said |= {"status": "error", "error": _error(error)}
    except Exception as error:  # noqa: BLE001 - whatever else is raised is what we look for
        frames = traceback.extract_tb(error.__traceback__)
        place = f"{os.path.basename(frames[-1].filename)}: {frames[-1].name}"  # noqa: PTH119
        said |= {"status": "crash", "kind": type(error).__name__, "text": str(error), "at": place}
    else:
        said["status"] = "ok"


def _error(error: Any) -> Answer:
    return {"code": error.code, "message": error.message, "data": text_of(error.data)}


def _exchange(asked: Input) -> seam.Exchange:
    headers = {data_of(name): data_of(value) for name, value in asked.get("headers", {}).items()}
    body, query = data_of(asked["body"]), data_of(asked.get("query", ""))
    return seam.Exchange(asked["client"], asked["dialect"], body, headers, query)


def _request(asked: Input, said: Answer) -> None:
    exchange, fields = _exchange(asked), asked.get("endpoint", {})
    said |= exchange.asks | exchange.forwarded
    lost: Answer = {}
    apart: Answer = {}
    _note(lost, lambda: lost.update(names=exchange.lost(fields)))
    _note(apart, lambda: apart.update(names=exchange.lost_without_content(fields)))
    said["lost"] = lost
    if apart != lost and lost["status"] != "refused":
        said["lost_without_content"] = apart
    said["sent"] = text_of(exchange.sent(fields))


def _reply(asked: Input, said: Answer) -> None:
    _with_and_without_content(_read, asked, said)


def _stream(asked: Input, said: Answer) -> None:
    _with_and_without_content(_relay, asked, said)


def _with_and_without_content(read: Callable[..., None], asked: Input, said: Answer) -> None:
    exchange, apart = _exchange(asked), {}
    try:
        read(exchange, asked, said)
    finally:
        _note(apart, lambda: read(exchange, asked, apart, content=False))
        said["without_content"] = apart


def _read(exchange: seam.Exchange, asked: Input, said: Answer, *, content: bool = True) -> None:
    body = data_of(asked["reply"])
    try:
        reading = exchange.read(body, content=content)
    except seam.Malformed:
        if error := seam.error_in_reply(body):
            said["instead"] = _error(error)
        raise
    said["facts"] = seam.facts(reading)
    said["shown"] = text_of(seam.shown(reading, asked.get("maker", "")))


def _relay(exchange: seam.Exchange, asked: Input, said: Answer, *, content: bool = True) -> None:
    stream = exchange.open(asked.get("maker", ""), asked.get("tokens", 0), content=content)
    feeds: list[str] = []
    said |= {"feeds": feeds, "spoke_after": None, "done_after": None}
    try:
        for number, data in enumerate(asked["events"], 1):
            feeds.append(text_of(stream.feed(data_of(data))))
            if said["spoke_after"] is None and not stream.is_silent:
                said["spoke_after"] = number
            if said["done_after"] is None and stream.done:
                said["done_after"] = number
    except (seam.Malformed, seam.ErrorReported):
        said["facts"] = seam.facts(stream)
        said["end"] = text_of(stream.fail(seam.CUT))
        raise
    said["facts"] = seam.facts(stream)
    if asked["end"] == "fail" or (asked["end"] == "as it came" and not stream.complete):
        said["end"] = text_of(stream.fail(_failure(asked)))
    elif asked["end"] is not None:
        said["end"] = text_of(seam.ended(stream))


def _failure(asked: Input) -> errors.TollhouseError:
    """Return the error of an input; it need not have the facts that its constructor asks for."""
    if "error" not in asked:
        return seam.CUT
    kind: type[errors.TollhouseError] = getattr(errors, asked["error"]["kind"])
    error = kind.__new__(kind, asked["error"]["facts"]["message"])
    error.__dict__.update(asked["error"]["facts"])
    return error


def _client_error(asked: Input, said: Answer) -> None:
    body = seam.error_body(asked["client"], _failure(asked), asked["generation"])
    said["shown"] = json.dumps(body, default=str)


def _provider_error(asked: Input, said: Answer) -> None:
    data = data_of(asked["data"])
    said["error"] = _error(seam.provider_error(data))
    instead = seam.error_in_reply(data)
    said["instead"] = None if instead is None else _error(instead)


def _whole(asked: Input, said: Answer) -> None:
    events = seam.events_of(asked["dialect"], data_of(asked["data"]))
    said["events"] = [text_of(each) for each in events]


_ANSWERS: Mapping[str, Callable[[Input, Answer], None]] = {
    "request": _request,
    "reply": _reply,
    "stream": _stream,
    "client error": _client_error,
    "provider error": _provider_error,
    "whole reply": _whole,
}


def _too_long(*_: object) -> NoReturn:
    raise TimeoutError(f"no answer after {MOST_SECONDS} seconds")


def main() -> None:
    signal.signal(signal.SIGALRM, _too_long)
    lines = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # what the product prints is no answer
    for line in sys.stdin:
        signal.alarm(MOST_SECONDS)
        said = answer(json.loads(line))
        signal.alarm(0)
        lines.write(json.dumps(said) + "\n")
    lines.flush()


if __name__ == "__main__":
    main()
