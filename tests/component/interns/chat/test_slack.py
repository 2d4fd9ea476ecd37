"""An intern in Slack: the real `slack_sdk` before a stand-in for Slack; the daemon is a fake."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
from slack_sdk.signature import SignatureVerifier

from tests.component.interns.fake_daemon import (
    ANSWERED,
    ELICITATION,
    ENDED,
    HOLD,
    PERMISSION,
    STARTED,
    STEERED,
    STREAM,
    chunk,
    error_response,
    event,
    stream,
)
from tests.support import slack_server
from tests.support.slack_server import (
    APP_TOKEN,
    BOT_TOKEN,
    BOT_USER,
    CHANNEL,
    DIRECT,
    SIGNING_SECRET,
    USER,
    SlackStandIn,
    press,
)
from tests.support.waiting import until
from tollhouse.interns.chat.channels import HttpEvent
from tollhouse.interns.chat.channels.slack_server import SlackPace, SlackServer
from tollhouse.interns.chat.channels.supervisor import Channels, Installation
from tollhouse.interns.chat.service import ChatRateLimiter, ChatService
from tollhouse.interns.types import InternStatus, Operation
from tollhouse.kernel.errors import Invalid, NotFound, Unauthenticated
from tollhouse.kernel.secret import Secret
from tollhouse.observability.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.component.interns.fake_daemon import FakeDaemon
    from tests.component.interns.machine import Machine
    from tollhouse.interns.types import Intern

PACE = SlackPace(edit=0.02, ping=0.2, pause=0.05)
SOCKET = {"bot_token": BOT_TOKEN, "app_token": APP_TOKEN}
SIGNED = {"bot_token": BOT_TOKEN, "signing_secret": SIGNING_SECRET}
SAID = ("text", {"text": "Done & <dusted>."})
HELLO = f"<@{BOT_USER}> tidy &amp; sort"


@dataclass
class InSlack:
    """An intern that is installed in Slack."""

    slack: SlackStandIn
    machine: Machine
    channels: Channels
    intern: Intern

    @property
    def daemon(self) -> FakeDaemon:
        return self.machine.runtime.daemon

    async def send(self, kind: str = "app_mention", text: str = HELLO, **more: Any) -> str:
        return await self.slack.push("events_api", slack_server.event(kind, text, **more))

    async def says(self, text: str) -> tuple[str, dict[str, Any]]:
        """Wait for a message with a text; return its ts, and what it has now."""

        def found() -> list[tuple[str, dict[str, Any]]]:
            return [
                (ts, dict(sent)) for ts, sent in self.slack.messages.items() if text in sent["text"]
            ]

        return (await until(found))[-1]

    async def press(self, said: tuple[str, dict[str, Any]], label: str, **more: Any) -> None:
        await self.slack.push("interactive", press(said, label, **more))


@asynccontextmanager
async def slack_of(machine: Machine) -> AsyncIterator[tuple[SlackStandIn, Channels]]:
    slack = SlackStandIn()
    await slack.start()
    interns = machine.interns
    chats = ChatService(
        interns.context, machine.service, machine.sandboxes, ChatRateLimiter(50), Metrics()
    )
    name, server = machine.workspaces.machine, SlackServer(slack.api_url, PACE)
    channels = Channels(chats, name, server, seconds=60)
    channels.start()
    try:
        yield slack, channels
    finally:
        await channels.stop()
        await slack.stop()


def installation(tokens: dict[str, str], mode: Any = "self-drive") -> Installation:
    return Installation({name: Secret(each) for name, each in tokens.items()}, [USER], mode)


@pytest.fixture
async def installed(machine: Machine) -> AsyncIterator[InSlack]:
    async with slack_of(machine) as (slack, channels):
        waiting = await machine.interns.create(chat="slack")
        assert waiting.state.status is InternStatus.AWAITING_CHAT_INSTALL
        await channels.install(machine.interns.caller, waiting.id, installation(SOCKET))
        intern = await machine.until_status(waiting, InternStatus.RUNNING)
        await slack.until_connected(1)
        yield InSlack(slack, machine, channels, intern)


async def test_a_mention_is_acknowledged_and_answered_in_its_thread(installed: InSlack) -> None:
    installed.daemon.script(stream(STARTED, SAID, ENDED))
    envelope = await installed.send(ts="1600000001.000100")
    _, said = await installed.says("Done")
    assert said["text"] == "Done &amp; &lt;dusted&gt;."
    assert (said["channel"], said["thread_ts"]) == (CHANNEL, "1600000001.000100")
    assert envelope in installed.slack.acknowledged
    (asked,) = installed.daemon.asked
    assert asked.body == {"input": "tidy & sort", "approval_mode": "self-drive"}
    assert asked.session == f"slack {CHANNEL} 1600000001.000100"


async def test_a_reply_grows_by_edits_and_shows_what_is_done(installed: InSlack) -> None:
    first = chunk(event(*STARTED, 1) + event("text", {"text": "I look."}, 2))
    tool = chunk(event("tool.started", {"call": "c", "tool": "shell", "title": "ls"}, 3))
    last = chunk(event("text", {"text": " Two files."}, 4) + event(*ENDED, 5))
    installed.daemon.script([STREAM, first, 0.2, tool, 0.2, last, chunk(b"")])
    await installed.send("message", "What is there?")
    ts, said = await installed.says("I look. Two files.")
    assert said["channel"] == DIRECT
    shown = [each["text"] for each in installed.slack.of("chat.update") if each["ts"] == ts]
    assert "I look.\n\n_ls_" in shown
    assert len(installed.slack.of("chat.postMessage")) == 1


async def test_a_long_reply_is_several_messages(installed: InSlack) -> None:
    lines = "".join(f"line {number} & more\n" for number in range(600))
    told = [lines[at : at + 3_000] for at in range(0, len(lines), 3_000)]
    texts = [event("text", {"text": each}, at) for at, each in enumerate(told, 2)]
    pieces = [step for each in texts for step in (0.1, chunk(each))]
    ended = chunk(event(*ENDED, len(told) + 2))
    installed.daemon.script([STREAM, chunk(event(*STARTED, 1)), *pieces, ended, chunk(b"")])
    # More comes while a message is waited for.
    late = (429, {"ok": False, "error": "ratelimited"}, {"Retry-After": "0"})
    installed.slack.refuse["chat.postMessage"] = [late, late]
    await installed.send()
    await installed.says("line 599")
    whole = "".join(installed.slack.texts)
    assert whole == lines.replace("&", "&amp;")
    assert all(len(each) <= 3_500 for each in installed.slack.texts)


async def test_doubled_and_foreign_events_do_nothing(installed: InSlack) -> None:
    installed.daemon.script(stream(STARTED, SAID, ENDED))
    payload = slack_server.event("app_mention", HELLO)
    for number in range(3):
        more = {"retry_attempt": number, "retry_reason": "timeout"} if number else {}
        await installed.slack.push("events_api", payload, **more)
    for fields in (
        {"bot_id": "B1"},
        {"user": BOT_USER},
        {"subtype": "message_changed"},
        {"type": "reaction_added"},
        {"type": "message", "channel_type": "channel"},
        {"text": f"<@{BOT_USER}> "},
    ):
        await installed.send(**{"text": HELLO, **fields})
    await installed.slack.push("slash_commands", {"command": "/x"})
    await installed.slack.push("events_api", {"event_id": "odd"})
    last = await installed.send()
    await until(lambda: last in installed.slack.acknowledged)
    await until(lambda: len(installed.slack.texts) == 2)
    assert len(installed.daemon.asked) == 2


async def test_only_who_is_on_the_list_may_talk_and_answer(installed: InSlack) -> None:
    await installed.send(user="U0EVE")
    await until(lambda: installed.slack.of("chat.postEphemeral"))
    assert installed.daemon.asked == []
    installed.daemon.script(stream(STARTED, PERMISSION))
    await installed.send()
    asked = await installed.says("rm -r build")
    await installed.press(asked, "Allow once", user="U0EVE")
    await until(lambda: len(installed.slack.of("chat.postEphemeral")) == 2)
    assert len(installed.daemon.asked) == 1


async def test_a_permission_is_a_row_of_buttons(installed: InSlack) -> None:
    answered = stream(ANSWERED, SAID, ENDED, first=3)
    installed.daemon.script(stream(STARTED, PERMISSION), answered)
    await installed.send()
    ts, asked = await installed.says("rm -r build")
    await installed.press((ts, asked), "Allow always")
    await installed.says("Done")
    assert installed.daemon.asked[1].body == {"interaction": "ask-1", "answer": "allow_always"}
    assert installed.daemon.asked[1].session == installed.daemon.asked[0].session
    now = installed.slack.messages[ts]
    assert (now["blocks"], now["text"].endswith(f"<@{USER}>: allow always")) == ([], True)


async def test_what_is_not_shown_whole_cannot_be_allowed(installed: InSlack) -> None:
    for length, labels in ((9_000, 4), (90_000, 2)):
        asked = {**PERMISSION[1]["permission"], "operation": "x&y```" * (length // 6) + "the end"}
        question = ("question", {**PERMISSION[1], "permission": asked})
        installed.daemon.script(stream(STARTED, question))
        before = len(installed.slack.messages)
        await installed.send()
        await until(lambda before=before: len(installed.slack.messages) > before)
        blocks = list(installed.slack.messages.values())[-1]["blocks"]
        shown = [each["text"]["text"] for each in blocks if each["type"] == "section"]
        assert all(len(each) <= 3_000 and each.count("```") in {0, 2} for each in shown)
        assert ("the end" in shown[-1]) is (labels == 4)
        assert len(blocks[-1]["elements"]) == labels
        assert len(blocks) <= 50


async def test_a_form_is_filled_in_or_declined(installed: InSlack) -> None:
    fields = [
        {"name": "city", "type": "string", "required": True, "options": ["Bern", "Oslo"]},
        {"name": "<nights>", "type": "integer", "required": True},
        {"name": "quiet", "type": "boolean", "required": False},
        {"name": "note", "type": "string", "required": False},
    ]
    form = {"kind": "elicitation", "message": "Where to?", "fields": fields}
    question = ("question", {**ELICITATION[1], "elicitation": form})
    installed.daemon.script(stream(STARTED, question), stream(ENDED, first=3))
    await installed.send()
    asked = await installed.says("Where to?")
    kinds = [each["element"]["type"] for each in asked[1]["blocks"] if each["type"] == "input"]
    assert kinds == ["static_select", "plain_text_input", "static_select", "plain_text_input"]
    chosen = {
        "city": {"field_0": {"selected_option": {"text": {"text": "Oslo"}, "value": "1"}}},
        "quiet": {"field_2": {"selected_option": {"text": {"text": "yes"}, "value": "0"}}},
        "note": {"field_3": {"value": None}},
    }
    await installed.press(asked, "Send", **chosen, **{"<nights>": {"field_1": {"value": "two"}}})
    await until(lambda: installed.slack.of("chat.postEphemeral"))
    assert "&lt;nights&gt;: has to" in installed.slack.of("chat.postEphemeral")[0]["text"]
    await installed.press(asked, "Send", **chosen, **{"<nights>": {"field_1": {"value": "2"}}})
    await until(lambda: len(installed.daemon.asked) == 2)
    sent = json.loads(installed.daemon.asked[1].body["answer"])
    assert sent == {"action": "accept", "content": {"city": "Oslo", "<nights>": 2, "quiet": True}}
    installed.daemon.script(error_response(409, "interaction_not_pending"))
    await installed.press(asked, "Decline")
    await until(lambda: len(installed.slack.of("chat.postEphemeral")) == 2)
    assert installed.daemon.asked[2].body["answer"] == '{"action":"decline"}'


async def test_a_message_while_it_works_is_handed_in_and_elsewhere_refused(
    installed: InSlack,
) -> None:
    held = [STREAM, chunk(event(*STARTED, 1)), HOLD]
    installed.daemon.script(held, STEERED, error_response(409, "busy"))
    await installed.send(ts="1600000002.000100")
    await until(lambda: installed.daemon.asked)
    await installed.send(text="Faster", thread_ts="1600000002.000100")
    await installed.says("was told")
    await installed.send(text="Something else")
    await installed.says("works on something else")
    first, second, third = installed.daemon.asked
    assert (second.session, third.session == first.session) == (first.session, False)


async def test_a_run_that_fails_says_why(installed: InSlack) -> None:
    error = {"reason": "turn_failed", "message": "The provider is overloaded.", "retryable": True}
    ended = ("run.ended", {"outcome": "failed", "usage": None, "error": error})
    installed.daemon.script(stream(STARTED, ended))
    await installed.send()
    await installed.says("The provider is overloaded.")


async def test_files_go_into_the_workspace(installed: InSlack) -> None:
    slack, daemon = installed.slack, installed.daemon
    slack.files["notes.txt"] = b"x" * 10
    url = f"{slack.origin}/files/notes.txt"
    sent = [
        {"name": "../notes.txt", "size": 10, "url_private_download": url},
        {"name": "big", "size": 10**9, "url_private_download": url},
        {"name": "evil", "size": 1, "url_private_download": "https://127.1.0.1:9/evil"},
    ]
    daemon.script(stream(STARTED, SAID, ENDED))
    await installed.send("message", "Read this", subtype="file_share", files=sent)
    await installed.says("Done")
    assert "received/notes.txt" in daemon.asked[-1].body["input"]
    assert daemon.uploads == {"/files/received/notes.txt": b"x" * 10}
    refused = "\n".join(slack.texts)
    assert "at most 20 MiB" in refused
    assert "stored in Slack" in refused


async def test_a_rate_limit_is_waited_out_and_other_refusals_end_no_run(
    installed: InSlack,
) -> None:
    installed.slack.refuse["chat.postMessage"] = [
        (429, {"ok": False, "error": "ratelimited"}, {"Retry-After": "0"}),
        (200, {"ok": False, "error": "is_archived"}, {}),
    ]
    daemon = installed.daemon
    daemon.script(stream(STARTED, SAID, ENDED))
    await installed.send()
    await until(lambda: len(installed.slack.of("chat.postMessage")) == 2)
    await installed.send()
    await installed.says("Done")


@pytest.mark.parametrize("how", ["refresh_requested", "cut"])
async def test_a_connection_is_made_anew(installed: InSlack, how: str) -> None:
    slack = installed.slack
    before = slack.opened
    if how == "cut":
        await slack.cut()
    else:
        await slack.send({"type": "disconnect", "reason": how})
    await slack.until_connected(before + 1)
    installed.daemon.script(stream(STARTED, SAID, ENDED))
    envelope = await installed.send()
    await installed.says("Done")
    assert envelope in slack.acknowledged


async def test_a_stopped_intern_is_woken_and_does_what_waited(installed: InSlack) -> None:
    await installed.machine.request(Operation.SUSPEND, installed.intern)
    installed.daemon.script(stream(STARTED, SAID, ENDED))
    await installed.send()
    offer = await installed.says("It is stopped.")
    assert installed.daemon.asked == []
    await installed.press(offer, "Wake it")
    await installed.says("Done")
    assert installed.slack.messages[offer[0]]["text"] == f"<@{USER}> wakes it."
    installed.daemon.script(stream(STARTED, SAID, ENDED))
    await installed.press(offer, "Wake it")
    await installed.says("It runs again.")


def signed(body: bytes, at: float, secret: str = SIGNING_SECRET, **more: str) -> HttpEvent:
    signature = SignatureVerifier(secret).generate_signature(timestamp=str(int(at)), body=body)
    stamp = {"x-slack-request-timestamp": str(int(at)), "x-slack-signature": signature or ""}
    return HttpEvent(body, {"content-type": "application/json", **stamp, **more})


async def test_signed_events_over_http(machine: Machine) -> None:
    async with slack_of(machine) as (slack, channels):
        intern = await machine.running_intern()
        now = machine.interns.clock.now().timestamp()
        challenge = signed(b'{"type": "url_verification", "challenge": "abc"}', now)
        with pytest.raises(NotFound):
            await channels.receive(intern.id, challenge)
        await channels.install(machine.interns.caller, intern.id, installation(SIGNED))
        inner: Any = channels
        await until(lambda: any(each.channel._web for each in inner._connected.values()))  # noqa: SLF001 - nothing else shows it
        answer = await channels.receive(intern.id, challenge)
        assert json.loads(answer) == {"challenge": "abc"}
        assert slack.opened == 0
        body = json.dumps(slack_server.event("app_mention", HELLO)).encode()
        for wrong in (
            signed(body, now - 400),
            signed(body, now, "another"),
            HttpEvent(body, {}),
            signed(body, now, **{"x-slack-request-timestamp": "x"}),
            signed(body, now, **{"x-slack-signature": "v0=é"}),
            HttpEvent(body + b" ", signed(body, now).headers),
        ):
            with pytest.raises(Unauthenticated):
                await channels.receive(intern.id, wrong)
        with pytest.raises(Invalid):
            await channels.receive(intern.id, signed(b"[]", now))
        machine.runtime.daemon.script(stream(STARTED, PERMISSION), stream(ENDED, first=3))
        told = InSlack(slack, machine, channels, intern)
        for retry in ("0", "1"):
            more = {"x-slack-retry-num": retry}
            assert await channels.receive(intern.id, signed(body, now, **more)) == b""
        asked = await told.says("rm -r build")
        form = urlencode({"payload": json.dumps(press(asked, "Reject"))}).encode()
        headers = {"content-type": "application/x-www-form-urlencoded"}
        await channels.receive(intern.id, signed(form, now, **headers))
        await until(lambda: len(machine.runtime.daemon.asked) == 2)
        assert machine.runtime.daemon.asked[1].body["answer"] == "reject_once"


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        ({"bot_token": BOT_TOKEN}, "needs the bot's token"),
        ({**SOCKET, "bot_token": "xoxb-wrong"}, "invalid_auth"),
        ({**SOCKET, "app_token": "xapp-wrong"}, "invalid_auth"),
    ],
)
async def test_tokens_that_slack_refuses_install_nothing(
    machine: Machine, tokens: dict[str, str], said: str
) -> None:
    async with slack_of(machine) as (_, channels):
        waiting = await machine.interns.create(chat="slack")
        with pytest.raises(Invalid, match=said) as refused:
            await channels.install(machine.interns.caller, waiting.id, installation(tokens))
        assert "wrong" not in str(refused.value)
        found = await machine.interns.get(waiting.id)
        assert found.state.status is InternStatus.AWAITING_CHAT_INSTALL


async def test_other_tokens_connect_anew_and_a_deleted_intern_disconnects(
    installed: InSlack,
) -> None:
    slack, machine = installed.slack, installed.machine
    caller, before = machine.interns.caller, slack.opened
    machine.interns.clock.advance(1)
    await installed.channels.install(caller, installed.intern.id, installation(SOCKET, "manual"))
    await slack.until_connected(before + 2)  # one to try the tokens
    installed.daemon.script(stream(STARTED, SAID, ENDED))
    await until(lambda: len(slack._sockets) == 1)  # noqa: SLF001 - the earlier one has gone
    await installed.send()
    await installed.says("Done")
    assert installed.daemon.asked[-1].body["approval_mode"] == "manual"
    await machine.request(Operation.DELETE, installed.intern)
    await machine.until_gone(installed.intern)
    await until(lambda: not slack._sockets)  # noqa: SLF001 - nobody is connected any more
