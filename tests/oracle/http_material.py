"""What conversations are made of: the bodies of the format tests, texts, and random changes.

asks(form)           bodies of clients, as JSON or as bytes that need not be JSON
features_of(form)    fields that a client adds to a plain body
wholes(dialect)      bodies of providers' replies
streams(dialect)     the data of the events of providers' streams
changed(draw, body)  a copy with something in it dropped, doubled or of another type
"""

from __future__ import annotations

import json
from copy import deepcopy
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

import yaml

from tests.support.stream_folding import streamed
from tests.unit.inference.formats.corpus_files import cases
from tests.unit.inference.formats.features import features

_FORMATS: Final = Path(__file__).parents[1] / "unit" / "inference" / "formats"
TRANSLATED: Final = ("chat", "responses", "messages")
TEXTS: Final = (
    *("hello", "one two three", "And then?", "Say it in one word.", " ", "x"),
    "Zürich, 東京, Ελλάδα, 🎉👩‍👩‍👧, e\u0301, \u202eright to left",
    'two\nlines\r\nand\ta tab, "quotes" and a \\ and </script>',
    "data: {}\n\nevent: message_stop\ndata: [DONE]\n\n",
    "separators \u2028 and \u2029, no character \ufffe, a bell \u0007",
    "Be careful, read before you write, and say what you did. " * 30,
)
LONG: Final = "A text that is so long that another process reads it. " * 6_000
_cases: Final = cache(cases)
_ODD: Final = (None, 0, -1, 1.5, True, "", "text", [], {}, [None], {"type": "unheard_of"})


@cache
def asks(form: str) -> list[bytes]:
    """Return the bodies of all requests of a format's clients in the corpus."""
    found: list[bytes] = []
    for kind in ("requests", "replies", "streams"):
        for case in _cases(kind).values():
            if case.client == form:
                own = kind == "requests" and "body" in case.row
                found.append(case.encoded("request" if own else "ask"))
    return found


@cache
def features_of(form: str) -> list[dict[str, Any]]:
    """Return what each feature of requests has that the plain body lacks."""
    plain, known = features("requests")
    listed = [feature.says[form] for feature in known.values() if form in feature.says]
    return [
        {name: value for name, value in body.items() if value != plain[form].get(name)}
        for body in listed
    ]


@cache
def wholes(dialect: str) -> list[bytes]:
    """Return the bodies of a dialect's replies: of the features and of the corpus."""
    said = [json.dumps(body).encode() for body in _features(dialect)]
    return said + [c.encoded("reply") for c in _cases("replies").values() if c.dialect == dialect]


@cache
def streams(dialect: str) -> list[list[bytes]]:
    """Return the events of a dialect's streams: of the features and of the corpus."""
    said = [case.events() for case in _cases("streams").values() if case.dialect == dialect]
    for body in _features(dialect):
        try:
            said.append([json.dumps(each).encode() for each in streamed(dialect, body)])
        except (KeyError, TypeError):  # it has no stream
            continue
    return [events for events in said if events]


def _features(dialect: str) -> list[dict[str, Any]]:
    _, known = features("replies")
    return [each.says[dialect] for each in known.values() if dialect in each.says]


@cache
def table(name: str) -> Any:
    """Return a table of the format tests: `calls`, `errors`, `orders` or `usage`."""
    return yaml.load((_FORMATS / f"{name}.yaml").read_bytes(), yaml.CSafeLoader)


def text(draw: Random) -> str:
    return draw.choice(TEXTS)


def changed(draw: Random, body: Any) -> Any:
    """Return a copy of JSON with one thing changed, at any depth."""
    body = deepcopy(body)
    places = _places(body)
    if not places:
        return draw.choice(_ODD)
    above, name = draw.choice(places)
    match draw.randrange(6):
        case 0:
            del above[name]
        case 1:
            above[name] = [above[name]]
        case 2 if isinstance(above, list):
            above.append(deepcopy(above[name]))
        case 2:
            above["novelty"] = deepcopy(above[name])
        case 3 if isinstance(above[name], str):
            above[name] += draw.choice(TEXTS)
        case 4:
            above[name] = deepcopy(draw.choice(places)[0])
        case _:
            above[name] = deepcopy(draw.choice(_ODD))
    return body


def _places(body: Any) -> list[tuple[Any, Any]]:
    """Return each object or list in a body with each of its names or numbers."""
    names: Any = (
        body if isinstance(body, dict) else range(len(body) if isinstance(body, list) else 0)
    )
    found = [(body, name) for name in names]
    return found + [place for _, name in found for place in _places(body[name])]
