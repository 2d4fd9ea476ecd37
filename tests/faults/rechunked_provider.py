r"""A provider whose streams have the same content each time, split at random places.

    request that says "seed 42" ─▶ the events of a reply         (seed 0: one chunk for each)
                                   lines, JSON escapes, comments drawn from 42
                                   HTTP framing, its chunks      drawn from 42
                                   what leaves in one write      drawn from 42

Cuts fall anywhere and, by preference, where they hurt: inside of a code point, of `\r\n`, of
`\ud83d`, of the blank line between two events, of a chunk's size. Whole replies are not cut: they
and the streams of seed 0 are what the others are measured by.
"""

import json
import random
import re
from itertools import pairwise
from typing import Any

from tests.support.providers import chat_renderer, messages_renderer, responses_renderer
from tests.support.providers.byte_script import End, Pause, Script
from tests.support.providers.framing import Framing, chunk
from tests.support.providers.stub_reply import CACHED, Call, Renderer, Said
from tests.support.providers.upstream_server import ReceivedRequest

DIALECTS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
TEXT = (
    'Grüße aus 東京: "so", \\so\\ und\tso;\n'
    "👩\u200d👩\u200d👧 \u05e2\u05d1\u05e8 e\u0301 a\u2028b data: [DONE] \x00 \U0001d518nd Ende."
)
THOUGHT = "Hm\u2026 🤔 \\n ist kein\nUmbruch; data: [DONE] ist kein Ende."
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("look", {"city": 'Kraków "Śródmieście"', "days": 2, "note": "Zeile\n😀\\"}),
    ("find", {"what": ["ü", {"日本": None}], "exact": True}),
]
REPLIES = ("spoken", "called", "signed")
LINE_ENDS = (b"\n", b"\n", b"\r\n", b"\r\n", b"\r")
MOST_CUTS = 60
PAUSE = Pause(0.001)
SORE = tuple(
    map(
        re.compile,
        (
            rb"(?<=[\x80-\xff])(?=[\x80-\xbf])",  # inside of a code point
            rb"(?<=\r)(?=\n)",
            rb"(?<=[\r\n])(?=[\r\n])",
            rb"(?<=[\r\n]{2})(?![\r\n])",  # behind an event
            rb"(?=data: )",  # also where that is part of what is said
            rb"(?<=da)(?=ta:)|(?<=data:)|(?<=\[DO)",
            rb"(?<=\\)|(?<=\\u)|(?<=\\u[0-9a-f])|(?<=\\u[0-9a-f]{2})|(?<=\\u[0-9a-f]{3})",
            rb"(?<=\\ud[89ab][0-9a-f]{2})(?=\\ud)",  # between the halves of a pair
        ),
    )
)
SEED = re.compile(rb"seed (\d+)")


# ------------------------------------------------------------------------------------ replies


RENDERERS: dict[str, Renderer] = {
    "chat": chat_renderer,
    "responses": responses_renderer,
    "messages": messages_renderer,
}


def reply_of(dialect: str, name: str, fields: dict[str, Any]) -> tuple[bytes, list[bytes]]:
    """Return a whole reply and its events."""
    calls = [Call(each, json.dumps(given, ensure_ascii=False)) for each, given in CALLS]
    said = Said(
        {"model": "m", "stream_options": fields.get("stream_options")},
        CACHED,
        TEXT,
        thought=THOUGHT,
        sealed=name == "signed",
        calls=tuple(calls) if name == "called" else (),
    )
    return RENDERERS[dialect].whole(said), RENDERERS[dialect].events(said)


# --------------------------------------------------------------------------------------- cuts


def answer(request: ReceivedRequest) -> Script:
    """Return the script for a request: whole, or streamed with its seed."""
    dialect = next(name for name, path in DIALECTS.items() if path == request.path)
    fields = json.loads(request.body)
    whole, events = reply_of(dialect, fields["model"], fields)
    if not fields.get("stream"):
        return (Framing().whole(200, whole),)
    found = SEED.search(request.body)
    assert found is not None
    seed = int(found[1])
    return rechunked(events, seed) if seed else Framing().stream(events)


def rechunked(events: list[bytes], seed: int) -> Script:
    """Return the script of a stream, split by a seed."""
    draw = random.Random(seed)
    line_end = draw.choice(LINE_ENDS)
    body = b"".join(_written(each, draw).replace(b"\n", line_end) for each in events)
    framed, end = draw.choice((_chunked, _chunked, _counted, _until_closed))(body, draw)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    steps = [step for piece in _cut(head + framed, draw) for step in (piece, PAUSE)]
    return (*steps, *end)


def _written(event: bytes, draw: random.Random) -> bytes:
    """Return an event in another valid encoding: in ASCII, on several lines, with comments."""
    before, _, data = event.partition(b"data: ")
    how = draw.choice((None, None, "ascii", "lines"))
    if how is not None and data.startswith(b"{"):
        fields = json.loads(data)
        spread = json.dumps(
            fields, ensure_ascii=how == "ascii", indent=0 if how == "lines" else None
        )
        data = spread.encode().replace(b"\n", b"\ndata: ") + b"\n\n"
    comment = b": still here\n\n" if draw.random() < 0.1 else b""
    return comment + before + b"data: " + data


def _chunked(body: bytes, draw: random.Random) -> tuple[bytes, Script]:
    single = draw.random() < 0.3
    parts = [body[at : at + 1] for at in range(len(body))] if single else _cut(body, draw)
    chunks = b"".join(map(chunk, parts))
    return b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n", ()


def _counted(body: bytes, _draw: random.Random) -> tuple[bytes, Script]:
    return b"Content-Length: %d\r\n\r\n" % len(body) + body, ()


def _until_closed(body: bytes, _draw: random.Random) -> tuple[bytes, Script]:
    return b"Connection: close\r\n\r\n" + body, (End.EOF,)


def _cut(data: bytes, draw: random.Random) -> list[bytes]:
    """Return data in pieces, none of them empty."""
    anywhere = range(1, len(data))
    start = draw.choice(anywhere)
    sore = {
        match.start()
        for kind in draw.sample(SORE, draw.randint(1, len(SORE)))
        for match in kind.finditer(data)
        if 0 < match.start() < len(data)
    }
    places = draw.choice(
        (
            draw.sample(anywhere, draw.randint(0, MOST_CUTS)),
            draw.sample(sorted(sore), min(len(sore), MOST_CUTS)),
            draw.sample(sorted(sore), min(len(sore), MOST_CUTS)),
            anywhere[start : start + MOST_CUTS],  # one byte at a time
        )
    )
    return [data[a:b] for a, b in pairwise([0, *sorted(places), len(data)])]
