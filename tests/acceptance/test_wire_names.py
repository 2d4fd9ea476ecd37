"""Names of tools that another format does not take reach it changed, and come back as they were."""

from __future__ import annotations

import json
import re
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.wire import CLIENTS, DIALECTS, calling, said
from tests.support.format_clients import TextRequest
from tests.support.scripted_providers import reply, stream
from tests.support.stream_folding import streamed

if TYPE_CHECKING:
    from tests.acceptance.wire import Wire

LONG = "mcp__claude_ai_Cloudflare_Developer_Platform_2__search_cloudflare_documentation"
TOOLS = (LONG, "notes.search", "größe messen", "read")
LEGAL = {
    "chat": r"[a-zA-Z0-9_-]{1,64}",
    "responses": r"[a-zA-Z0-9_-]{1,64}",
    "messages": r"[a-zA-Z0-9_-]{1,128}",
}
CALL = {"city": "Rome"}


def names_in(asked: dict[str, Any]) -> list[str]:
    return [tool.get("function", tool)["name"] for tool in asked["tools"]]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("form", "dialect"), [each for each in product(CLIENTS, DIALECTS) if each[0] != each[1]]
)
def test_a_name_that_a_format_does_not_take_comes_back_as_it_was(
    wire: Wire, form: str, dialect: str, *, streams: bool
) -> None:
    client = CLIENTS[form]
    fields = client.fields(f"t/{dialect}", TextRequest(tools=TOOLS, forced=LONG))

    def ask(answer: bytes, fields: dict[str, Any]) -> tuple[Any, bytes]:
        wire.providers.say(dialect, answer)
        got = wire.ask(form=client.path, **fields)
        assert got.status_code == 200, got.text
        return wire.providers.asked(dialect)[-1], got.content

    asked, _ = ask(reply(said(dialect, "yes")), fields)
    names = names_in(asked)
    assert len(set(names)) == len(TOOLS)
    assert [each for each in names if not re.fullmatch(LEGAL[dialect], each)] == []
    assert names[-1] == "read"
    forced = asked["tool_choice"]
    assert forced.get("function", forced)["name"] == names[0]
    for own, name in zip(TOOLS, names, strict=True):
        whole = calling(dialect, ("c1", name, CALL))
        answer = stream(*streamed(dialect, whole)) if streams else reply(whole)
        _, shown = ask(answer, fields | {"stream": streams})
        got = (client.streamed if streams else client.whole)(shown)
        assert got.calls == ((own, CALL),)
        asked, _ = ask(reply(said(dialect, "yes")), client.follow_up(fields, got, ["done"]))
        sent = json.dumps(asked, ensure_ascii=False)
        assert sent.count(f'"{name}"') - (own == LONG) == 2
        assert own == name or own not in sent


def test_a_name_in_a_request_of_the_providers_own_format_is_passed_on(wire: Wire) -> None:
    fields = CLIENTS["chat"].fields("t/chat", TextRequest(tools=TOOLS))
    wire.providers.say("chat", reply(said("chat", "yes")))
    assert wire.ask(**fields).status_code == 200
    assert names_in(wire.providers.asked("chat")[0]) == list(TOOLS)
