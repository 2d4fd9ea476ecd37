"""A request to a provider of the client's own format: what it gets of the client's body.

Where only the model's name changes, the body is sent on without being decoded again. One that ends
with a space is always decoded, and written anew.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.seams.formats import Invalid, adapter, endpoint
from tests.support.seams.inference import FORMATS

if TYPE_CHECKING:
    from tests.support.seams.formats import Endpoint

LONG_ID = "call_" + "0123456789" * 6
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a":"th2."}'}}
TURNS: list[dict[str, Any]] = [
    {"role": "user", "content": 'Say "\U0001f600",\n\\ or th2.acme.x'},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "assistant", "content": "", "tool_calls": [{**CALL, "id": LONG_ID}]},
    {"role": "assistant", "tool_calls": [{**CALL, "extra_content": {"a": {}}}]},
    {"role": "assistant", "tool_calls": [{**CALL, "thought_signature": "th2.other.x"}]},
    {"role": "tool", "tool_call_id": LONG_ID, "content": "1"},
    {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "1"}]},
    {"role": "assistant", "content": "a", "reasoning": "b"},
    {"role": "assistant", "content": "a", "reasoning_content": "b"},
    {"role": "assistant", "content": [{"type": "thinking", "signature": "th2.other.x"}]},
    {"type": "reasoning", "encrypted_content": "th2.other.x", "summary": []},
]
FIELDS: dict[str, Any] = {
    "stream": [True, False],
    "stream_options": [{"include_usage": True}, {"include_usage": False}, None, 1],
    "store": [False, None],
    "max_tokens": [1, None],
    "temperature": [0.5],
    "user": ["someone"],
    "metadata": [{"model": "acme/large", "user_id": "\u00e9"}, None],
    "reasoning": [{"effort": "low"}, {"effort": "low", "max_tokens": 5}],
    "provider": [{"order": ["acme"]}],
    "tools": [[]],
    "a\u00e9\n": [None],
}
PROFILES: list[dict[str, Any]] = [
    {},
    {"usage_in_streams": False},
    {"refuses": ["user", "store", "temperature"]},
    {"refuses": ["stream_options"], "takes_extensions": True},
]
CONTENT = {"chat": "messages", "messages": "messages", "responses": "input"}
bodies = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from(values) for name, values in FIELDS.items()}
)


def sent(client: str, body: bytes, to: Endpoint | None = None) -> bytes:
    return adapter(client, client, body).render_request(to or endpoint())


@settings(deadline=None, max_examples=400)
@given(st.data())
def test_what_is_sent_on_is_what_would_be_written_anew(data: st.DataObject) -> None:
    client = data.draw(st.sampled_from(sorted(CONTENT)))
    turns = data.draw(st.lists(st.sampled_from(TURNS), min_size=1, max_size=3))
    fields = {**data.draw(bodies), "model": "acme/large", CONTENT[client]: turns}
    names = data.draw(st.permutations(sorted(fields)))
    ascii_ = data.draw(st.booleans())
    ordered = {name: fields[name] for name in names}
    body = json.dumps(ordered, separators=(",", ":"), ensure_ascii=ascii_).encode()
    to = endpoint(data.draw(st.sampled_from(PROFILES)))
    assert sent(client, body, to) == sent(client, body + b" ", to)


HELLO = '"messages":[{"role":"user","content":"hello"}]'


@pytest.mark.parametrize(
    ("body", "meant"),
    [
        ("{%s,'model':'a'}", "{%s,'model':'large-2026'}"),
        ("{'model':'a','model':'b',%s}", "{'model':'large-2026',%s}"),
        ("{'mod\\u0065l':'a',%s}", "{'model':'large-2026',%s}"),
        ("{'model':'\\u0061/b',%s}", "{'model':'large-2026',%s}"),
        ("{'x':{'model':'a'},'model':'a',%s}", "{'x':{'model':'a'},'model':'large-2026',%s}"),
        ("{'x':'\\'model\\':','model':'a',%s}", "{'x':'\\'model\\':','model':'large-2026',%s}"),
        ("{'\u00e9':1,'model' : 'a',%s}", "{'\u00e9':1,'model':'large-2026',%s}"),
        (" {'model':'a', %s}\n", "{'model':'large-2026',%s}"),
    ],
)
def test_the_name_of_the_model_is_replaced_wherever_it_stands(body: str, meant: str) -> None:
    given_, expected = (each.replace("'", '"') % HELLO for each in (body, meant))
    assert sent("chat", given_.encode()) == expected.encode()


def found(fields: dict[str, Any]) -> tuple[str, bool] | str:
    """Return the model and whether a stream is asked for, or why a chat request is refused."""
    try:
        request = FORMATS["/chat/completions"].parse(json.dumps(fields).encode(), {}, b"").request
    except Invalid as error:
        return error.message
    return request.model, request.stream


@pytest.mark.parametrize("model", ["a", "", None, 1, ["a"]])
@pytest.mark.parametrize("stream", [True, False, None, 1, "true"])
def test_a_plain_message_changes_nothing_of_what_is_read_of_a_request(
    model: Any, stream: Any
) -> None:
    fields = {"model": model, "stream": stream, "messages": [TURNS[0]]}
    unknown = {**fields, "messages": [{**TURNS[0], "unheard_of": 1}]}
    assert found(fields) == found(unknown)
