"""What only its maker can read goes back to it in its own field, and to no other provider."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.acceptance.wire import CLIENTS, said
from tests.support.format_clients import TextRequest
from tests.support.scripted_providers import reply, stream
from tests.support.stream_folding import streamed

if TYPE_CHECKING:
    from tests.acceptance.wire import Wire
    from tests.support.format_clients import ParsedReply

MINE = "only-mine"
USE = {"type": "tool_use", "id": "c1", "name": "read", "input": {"city": "Rome"}}
ITEM = {"type": "function_call", "id": "i", "call_id": "c1", "status": "completed"}
ITEM |= {"name": "read", "arguments": '{"city": "Rome"}'}
CALL = {
    "index": 0,
    "id": "c1",
    "type": "function",
    "function": {"name": "read", "arguments": '{"city": "Rome"}'},
}
EXTRA = {"extra_content": {"google": {"thought_signature": MINE}}}
THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": MINE}], "signature": MINE}


class Case(NamedTuple):
    """A provider's reply, and what it gets of it in the next turn."""

    dialect: str
    parts: Any
    back: Any


def in_chat(**message: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [CALL]} | message


DETAIL = {"type": "reasoning.text", "text": "hm", "signature": MINE, "id": None, "format": "acme"}
SIGNED = {"type": "thinking", "thinking": "hm", "signature": MINE}
UNSIGNED = {"thinking": MINE, "signature": ""}
REDACTED = {"type": "redacted_thinking", "data": MINE}
SIGNATURE = {"thought_signature": MINE}
LITELLM = {"provider_specific_fields": SIGNATURE}
WITHIN = CALL | {"function": CALL["function"] | SIGNATURE}
TEXTS = {"provider_specific_fields": {"thought_signatures": [MINE]}}
SEALED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": MINE}
SUMMED = SEALED | {"summary": [{"type": "summary_text", "text": "hm"}]}
CASES = {
    "a signature": Case("messages", [SIGNED, USE], SIGNED),
    "no signature": Case("messages", [SIGNED | {"signature": "", "thinking": MINE}, USE], UNSIGNED),
    "redacted thinking": Case("messages", [REDACTED, USE], REDACTED),
    "thinking_blocks": Case("chat", in_chat(thinking_blocks=[SIGNED]), SIGNED),
    "redacted blocks": Case("chat", in_chat(thinking_blocks=[REDACTED]), REDACTED),
    "a field of LiteLLM": Case("chat", in_chat(tool_calls=[CALL | LITELLM]), LITELLM),
    "a field in a function": Case("chat", in_chat(tool_calls=[WITHIN]), SIGNATURE),
    "texts of LiteLLM": Case("chat", in_chat(content="I read", **TEXTS), TEXTS),
    "encrypted content": Case("responses", [SEALED, ITEM], {"encrypted_content": MINE}),
    "reasoning_content": Case("chat", in_chat(reasoning_content=MINE), {"reasoning_content": MINE}),
    "reasoning": Case("chat", in_chat(reasoning=MINE), {"reasoning": MINE}),
    "reasoning_details": Case(
        "chat", in_chat(reasoning="hm", reasoning_details=[DETAIL]), {"signature": MINE}
    ),
    "parts of thinking": Case(
        "chat", in_chat(content=[THOUGHT, {"type": "text", "text": "I read"}]), THOUGHT
    ),
    "extra_content of a call": Case("chat", in_chat(tool_calls=[CALL | EXTRA]), EXTRA),
    "encrypted content, summed up": Case("responses", [SUMMED, ITEM], {"encrypted_content": MINE}),
    "extra_content of a text": Case("chat", in_chat(content="I read", **EXTRA), EXTRA),
}


def holds(value: Any, wanted: dict[str, Any]) -> bool:
    """Tell whether JSON has an object with some fields anywhere."""
    if isinstance(value, list):
        return any(holds(each, wanted) for each in value)
    if not isinstance(value, dict):
        return False
    if wanted.items() <= value.items():
        return True
    return any(holds(each, wanted) for each in value.values())


def whole_of(case: Case) -> dict[str, Any]:
    if case.dialect == "messages":
        return said("messages", "", content=case.parts, stop_reason="tool_use")
    if case.dialect == "responses":
        return said("responses", "", output=case.parts)
    return said("chat", "", message=case.parts, finish_reason="tool_calls")


def first_turn(
    wire: Wire, case: Case, form: str, model: str, *, streams: bool
) -> tuple[dict[str, Any], ParsedReply]:
    """Return the first request of a client, and what it got."""
    whole = whole_of(case)
    answer = stream(*streamed(case.dialect, whole)) if streams else reply(whole)
    wire.providers.say(case.dialect, answer)
    fields = CLIENTS[form].fields(model, TextRequest(tools=("read",)))
    got = wire.ask(form=CLIENTS[form].path, **fields, stream=streams)
    assert got.status_code == 200, got.text
    client = CLIENTS[form]
    return fields, (client.streamed if streams else client.whole)(got.content)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("form", CLIENTS)
@pytest.mark.parametrize("name", CASES)
def test_it_goes_back_to_its_maker_and_to_no_other(
    wire: Wire, name: str, form: str, *, streams: bool
) -> None:
    case, client = CASES[name], CLIENTS[form]
    model, other = f"t/{case.dialect}-two", f"{case.dialect}-b"
    fields, shown = first_turn(wire, case, form, model, streams=streams)
    assert shown.calls == (("read", {"city": "Rome"}),)
    again = client.follow_up(fields, shown, ["done"])
    fine = reply(said(case.dialect, "yes"))
    wire.providers.say(case.dialect, fine)
    assert wire.ask(form=client.path, **again).status_code == 200
    [asked] = wire.providers.asked(case.dialect)
    assert holds(asked, case.back), asked
    wire.providers.say(case.dialect, reply({"error": {"message": "busy"}}, 503))
    wire.providers.say(other, fine)
    assert wire.ask(form=client.path, **again).status_code == 200
    [asked] = wire.providers.asked(other)
    assert MINE not in json.dumps(asked)
    assert json.dumps(asked).count('"read"') == 2  # the tool and its call


@pytest.mark.parametrize("form", CLIENTS)
def test_a_provider_of_another_format_gets_nothing_of_it(wire: Wire, form: str) -> None:
    client = CLIENTS[form]
    for case in CASES.values():
        fields, shown = first_turn(wire, case, form, f"t/{case.dialect}", streams=False)
        for dialect in CLIENTS.keys() - {case.dialect}:
            wire.providers.say(dialect, reply(said(dialect, "yes")))
            again = client.follow_up(fields, shown, ["done"]) | {"model": f"t/{dialect}"}
            assert wire.ask(form=client.path, **again).status_code == 200
            assert MINE not in json.dumps(wire.providers.asked(dialect))


def test_reasoning_that_nobody_marked_reaches_an_unknown_server_in_the_field_that_most_require(
    wire: Wire,
) -> None:
    wire.providers.say("chat", reply(said("chat", "yes")))
    history = [{"role": "user", "content": "hi"}, in_chat(reasoning=MINE)]
    history.append({"role": "tool", "tool_call_id": "c1", "content": "done"})
    assert wire.ask("t/chat", messages=history).status_code == 200
    assert holds(wire.providers.asked("chat"), {"reasoning_content": MINE})


def test_a_signature_that_nobody_marked_is_passed_on(wire: Wire) -> None:
    wire.providers.say("messages", reply(said("messages", "yes")))
    case = CASES["a signature"]
    history = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": case.parts}]
    assert wire.ask("t/messages", "/messages", messages=history).status_code == 200
    assert holds(wire.providers.asked("messages"), case.back)


def test_thoughts_in_parts_reach_a_chat_client_as_text_and_reasoning(wire: Wire) -> None:
    parts = [THOUGHT, {"type": "text", "text": "so"}]
    for streams in (False, True):
        case = Case("chat", in_chat(content=parts, tool_calls=[CALL]), None)
        _, shown = first_turn(wire, case, "chat", "t/chat", streams=streams)
        assert (shown.text, shown.thought) == ("so", MINE)
