"""What a request or a response says is in no repr: those reach logs, by the names of callbacks."""

import json

import pytest

from tests.support.seams.inference import FORMATS
from tests.support.tables import tables

CASES = tables(__file__)

SAID = "said in confidence"
USER = {"role": "user", "content": SAID}
CHAT = {"model": "a/b", "messages": [USER]}
REQUESTS = CASES["REQUESTS"]
RESPONSES = CASES["RESPONSES"]


@pytest.mark.parametrize("path", REQUESTS)
def test_no_repr_holds_what_was_said(path: str) -> None:
    asked = json.dumps(REQUESTS[path]).encode()
    adapters = FORMATS[path].parse(asked, {}, b"")
    adapters.read(asked)
    assert SAID not in repr(adapters.request)
    parsed = []
    for dialect, adapter in adapters.items():
        body = RESPONSES[str(dialect)]
        parsed.append(adapter.parse_response(json.dumps(body).encode()))
        assert SAID not in repr(adapter)
    assert parsed
    assert SAID not in repr(parsed)
