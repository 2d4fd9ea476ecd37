"""An intern in Slack: the real `slack_sdk` before a stand-in for Slack; the daemon is a fake."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
import yaml
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
    ENTERPRISE,
    SIGNING_SECRET,
    TEAM,
    USER,
    SlackStandIn,
    press,
)
from tests.support.waiting import until
from tollhouse.interns import repository
from tollhouse.interns.chat.channels import HttpEvent
from tollhouse.interns.chat.channels import slack as slack_channel
from tollhouse.interns.chat.channels import slack_format as fmt
from tollhouse.interns.chat.channels.slack_client import pause_after
from tollhouse.interns.chat.channels.slack_server import SlackPace, SlackServer
from tollhouse.interns.chat.channels.supervisor import Channels, Installation
from tollhouse.interns.chat.events import (
    ElicitationField,
    ElicitationRequest,
    PermissionRequest,
    QuestionEvent,
)
from tollhouse.interns.chat.service import ChatRateLimiter, ChatService
from tollhouse.interns.types import InternChannel, InternStatus, Operation
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
DATA = yaml.safe_load(Path(__file__).with_name("slack.yaml").read_text())
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

    async def reinstall(self, wanted: Installation) -> None:
        """Install it otherwise, and wait until it is connected anew."""
        self.machine.interns.clock.advance(1)
        before = self.slack.opened
        await self.channels.install(self.machine.interns.caller, self.intern.id, wanted)
        await self.slack.until_connected(before + 2)  # one to try the tokens
        await until(lambda: len(self.slack._sockets) == 1)  # noqa: SLF001 - the earlier one has gone

    async def press(self, said: tuple[str, dict[str, Any]], label: str, **more: Any) -> None:
        await self.slack.push("interactive", press(said, label, **more))


@asynccontextmanager
async def slack_of(
    machine: Machine, proxied: pytest.MonkeyPatch | None = None
) -> AsyncIterator[tuple[SlackStandIn, Channels]]:
    slack = SlackStandIn()
    await slack.start()
    if proxied is not None:
        proxied.setenv("HTTP_PROXY", slack.origin)
        slack.origin = "http://127.0.0.1:9"
    interns = machine.interns
    chats = ChatService(
        interns.context, machine.service, machine.sandboxes, ChatRateLimiter(50), Metrics()
    )
    name = machine.workspaces.machine
    channels = Channels(chats, name, SlackServer(slack.api_url, PACE), seconds=60)
    channels.start()
    try:
        yield slack, channels
    finally:
        await channels.stop()
        await slack.stop()


def installation(
    tokens: dict[str, str], mode: Any = "self-drive", allowed: str = USER
) -> Installation:
    return Installation({name: Secret(each) for name, each in tokens.items()}, [allowed], mode)


@asynccontextmanager
async def installed_in(
    machine: Machine, proxied: pytest.MonkeyPatch | None = None
) -> AsyncIterator[InSlack]:
    async with slack_of(machine, proxied) as (slack, channels):
        waiting = await machine.interns.create(chat="slack")
        assert waiting.state.status is InternStatus.AWAITING_CHAT_INSTALL
        await channels.install(machine.interns.caller, waiting.id, installation(SOCKET))
        intern = await machine.until_status(waiting, InternStatus.RUNNING)
        await slack.until_connected(1)
        yield InSlack(slack, machine, channels, intern)


@pytest.fixture
async def installed(machine: Machine) -> AsyncIterator[InSlack]:
    async with installed_in(machine) as there:
        yield there


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
    slack, channels = installed.slack, installed.channels
    installed.daemon.script(stream(STARTED, SAID, ENDED))
    payload = slack_server.event("app_mention", HELLO)
    for number in range(3):
        more = {"retry_attempt": number, "retry_reason": "timeout"} if number else {}
        await slack.push("events_api", payload, **more)
    await installed.says("Done")
    await channels.stop()
    channels.start()
    await slack.until_connected(slack.opened + 1)
    await slack.push("events_api", payload, retry_attempt=3)
    for fields in DATA["no_prompts"]:
        await installed.send(**{"text": HELLO, **fields})
    foreign = {"team_id": "T0ELSE"}
    for outer in (foreign, {"authorizations": [foreign]}, {"team_id": None}):
        mention = slack_server.event("app_mention", HELLO)
        await slack.push("events_api", {**mention, **outer})
    await slack.push("slash_commands", {"command": "/x"})
    await slack.push("events_api", {"event_id": "odd"})
    shared = {**slack_server.event("app_mention", HELLO), "authorizations": [{"team_id": TEAM}]}
    last = await slack.push("events_api", {**shared, **foreign})
    await until(lambda: last in slack.acknowledged)
    await until(lambda: len(slack.texts) == 2)
    assert len(installed.daemon.asked) == 2


async def test_only_who_is_on_the_list_may_talk_and_answer(installed: InSlack) -> None:
    await installed.send(user="U0EVE")
    await installed.send(user_team="T0ELSE")
    await until(lambda: len(installed.slack.of("chat.postEphemeral")) == 2)
    assert installed.daemon.asked == []
    installed.daemon.script(stream(STARTED, PERMISSION))
    await installed.send(user_team=ENTERPRISE)
    asked = await installed.says("rm -r build")
    await installed.press(asked, "Allow once", user="U0EVE")
    elsewhere = press(asked, "Allow once")
    elsewhere["user"]["team_id"] = "T0ELSE"
    await installed.slack.push("interactive", elsewhere)
    await until(lambda: len(installed.slack.of("chat.postEphemeral")) == 4)
    assert len(installed.daemon.asked) == 1


async def test_a_channel_lets_in_the_members_of_the_workspace_alone(installed: InSlack) -> None:
    slack = installed.slack
    await installed.reinstall(installation(SOCKET, allowed=CHANNEL))
    refused = DATA["strangers"]
    for number, user in enumerate(refused):
        slack.users[f"U{number}"] = user
        await installed.send(user=f"U{number}")
    await until(lambda: len(slack.of("chat.postEphemeral")) == len(refused))
    slack.refuse["users.info"] = [(200, {"ok": False, "error": "missing_scope"}, {})]
    await installed.send(user="U0FULL")
    await until(lambda: len(slack.of("chat.postEphemeral")) == len(refused) + 1)
    assert installed.daemon.asked == []
    for user, what in zip(("U0FULL", "U0ORG"), DATA["members"], strict=True):
        slack.users[user] = what
        before = len(slack.texts)
        installed.daemon.script(stream(STARTED, SAID, ENDED))
        await installed.send(user=user)
        await until(lambda before=before: len(slack.texts) > before)
    assert len(installed.daemon.asked) == 2


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


def test_what_is_not_shown_whole_cannot_be_allowed() -> None:
    for length, labels in ((9_000, 4), (90_000, 2)):
        options = PERMISSION[1]["permission"]["options"]
        operation = "x&y```" * (length // 6) + "the end"
        asked = PermissionRequest(operation=operation, options=options)
        blocks = fmt.question_blocks(QuestionEvent(interaction="i", permission=asked))
        shown = [each["text"]["text"] for each in blocks if each["type"] == "section"]
        assert all(len(each) <= 3_000 and each.count("```") in {0, 2} for each in shown)
        assert ("the end" in shown[-1]) is (labels == 4)
        assert len(blocks[-1]["elements"]) == labels
        assert len(blocks) <= 50


def test_a_command_reads_as_it_runs() -> None:
    """Nothing in it reorders, hides or overwrites what stands beside it."""
    for text, visible in DATA["visible"].items():
        asked = PermissionRequest(operation=text, options=["allow_once"])
        question = QuestionEvent(interaction="i", permission=asked)
        blocks = fmt.question_blocks(question)
        assert blocks[1]["text"]["text"] == f"```{visible}```"
        assert fmt.question_text(question) == f"May I do this?\n{visible}"
        choice = ElicitationField(name="n", type="string", required=True, options=["a", text])
        form = ElicitationRequest(message=text, fields=[choice])
        blocks = fmt.question_blocks(QuestionEvent(interaction="i", elicitation=form))
        assert blocks[0]["text"]["text"] == visible
        assert (len(blocks[-1]["elements"]) == 2) is (text == visible)  # it can be sent


async def test_a_form_is_filled_in_or_declined(installed: InSlack) -> None:
    form = {"kind": "elicitation", "message": "Where to?", "fields": DATA["fields"]}
    question = ("question", {**ELICITATION[1], "elicitation": form})
    installed.daemon.script(stream(STARTED, question), stream(ENDED, first=3))
    await installed.send()
    asked = await installed.says("Where to?")
    kinds = [each["element"]["type"] for each in asked[1]["blocks"] if each["type"] == "input"]
    assert kinds == ["static_select", "plain_text_input", "static_select", "plain_text_input"]
    await installed.press(
        asked, "Send", **DATA["chosen"], **{"<nights>": {"field_1": {"value": "two"}}}
    )
    await until(lambda: installed.slack.of("chat.postEphemeral"))
    assert "&lt;nights&gt;: has to" in installed.slack.of("chat.postEphemeral")[0]["text"]
    await installed.press(
        asked, "Send", **DATA["chosen"], **{"<nights>": {"field_1": {"value": "2"}}}
    )
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


async def test_files_go_into_the_workspace(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slack and its files are reached through a proxy alone."""
    async with installed_in(machine, monkeypatch) as installed:
        slack, daemon = installed.slack, installed.daemon
        slack.files["notes.txt"] = b"x" * 10
        url = f"{slack.origin}/files/notes.txt"
        about = {"name": "../notes.txt", "size": 10, "url_private_download": url}
        sent = [
            {**about, "id": "F1"},
            {**about, "id": "../F2"},
            {**about, "id": "F3", "size": 10**9, "name": "big"},
            {**about, "id": "F4", "url_private_download": "https://127.1.0.1:9/evil"},
            *({**about, "id": f"F{number}"} for number in range(5, 11)),
            {**about, "id": "F11", "name": "late"},
        ]
        daemon.script(stream(STARTED, SAID, ENDED))
        await installed.send("message", "Read this", subtype="file_share", files=sent)
        await installed.says("Done")
        paths = [f"received/F{number}/notes.txt" for number in (1, 2, *range(5, 11))]
        assert all(f"- {path}" in daemon.asked[-1].body["input"] for path in paths)
        assert daemon.uploads == {f"/files/{path}": b"x" * 10 for path in paths}
        refused = "\n".join(slack.texts)
        said = ("at most 20 MiB", "stored in Slack", "At most 10 files a message; without late")
        assert [each for each in said if each not in refused] == []


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


async def test_a_connection_that_does_not_last_is_made_ever_more_slowly(
    installed: InSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[int] = []

    def pause(number: int, *_: object) -> float:
        failures.append(number)
        return 0.0

    monkeypatch.setattr(slack_channel, "pause_after", pause)
    for _ in range(4):
        opened = installed.slack.opened
        await installed.slack.send({"type": "disconnect", "reason": "warning"})
        await installed.slack.until_connected(opened + 1)
    assert failures == [0, 1, 2, 3]
    for number, whole in ((0, 1), (1, 2), (5, 32), (6, 60), (10**9, 60)):
        pauses = {pause_after(number, 1.0, f"U{app}") for app in range(20)}
        assert len(pauses) == 20
        assert all(whole / 2 <= each <= whole for each in pauses)


async def test_what_is_too_much_at_once_is_sent_again(installed: InSlack) -> None:
    held = [STREAM, chunk(event(*STARTED, 1)), HOLD]
    installed.daemon.script(*([held] * 32))
    for _ in range(32):
        await installed.send()
    await until(lambda: len(installed.daemon.asked) == 32)
    refused = await installed.send()
    await installed.slack.push("slash_commands", {})
    await until(lambda: len(installed.slack.acknowledged) == 33)
    assert refused not in installed.slack.acknowledged


async def test_one_machine_connects_and_events_are_forgotten_in_time(machine: Machine) -> None:
    intern = await machine.interns.create(chat="slack")
    context = machine.interns.context
    now, later = context.clock.now(), context.clock.now() + timedelta(seconds=9)
    async with context.database.writing() as write:
        channel = InternChannel(intern.id, "slack", sealed_tokens=b"x")
        await repository.save_channel(write, channel, now)
        for name, until_when in (("0-a", later), ("0-b", later + timedelta(seconds=9))):
            await repository.save_heartbeat(write, name, until_when)
        for name, at, those in (("0-a", now, 1), ("0-b", now, 0), ("0-b", later, 1)):
            found = await repository.installed_channels(write, name, at)
            assert len(found) == those, (name, at)
        claim = partial(repository.claim_event, write, intern.id)
        for second in range(5):
            assert await claim(f"Ev{second}", now + timedelta(seconds=second))
        await repository.forget_events(write, intern.id, now + timedelta(seconds=1), 3)
        known = [await claim(f"Ev{second}", later) for second in range(5)]
    assert known == [True, True, False, False, False]


async def test_a_stopped_intern_is_woken_and_does_what_waited_in_order(
    installed: InSlack,
) -> None:
    await installed.machine.request(Operation.SUSPEND, installed.intern)
    done = stream(STARTED, SAID, ENDED)
    installed.daemon.script(done, done)
    for said in ("first", "second"):
        sent = len(installed.slack.texts)
        await installed.send("message", said, thread_ts="1600000003.000100")
        await until(lambda sent=sent: len(installed.slack.texts) > sent)
    offer = await installed.says("It is stopped.")
    assert installed.daemon.asked == []
    pressed = press(offer, "Wake it")
    await installed.slack.push("interactive", pressed)
    await until(lambda: len([text for text in installed.slack.texts if "Done" in text]) == 2)
    assert [each.body["input"] for each in installed.daemon.asked] == ["first", "second"]
    assert installed.slack.messages[offer[0]]["text"] == f"<@{USER}> wakes it."
    await installed.slack.push("interactive", pressed)  # the same once more
    await installed.press(offer, "Wake it")
    await installed.says("It runs again.")
    assert len([text for text in installed.slack.texts if "It runs again" in text]) == 1


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
        for _ in range(2):  # somebody repeats it
            await channels.receive(intern.id, signed(form, now, **headers))
        await until(lambda: len(machine.runtime.daemon.asked) == 2)
        await until(lambda: not inner._connected[intern.id].channel._working)  # noqa: SLF001 - as above
        assert len(machine.runtime.daemon.asked) == 2
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
    await installed.reinstall(installation(SOCKET, "manual"))
    installed.daemon.script(stream(STARTED, SAID, ENDED))
    await installed.send()
    await installed.says("Done")
    assert installed.daemon.asked[-1].body["approval_mode"] == "manual"
    await machine.request(Operation.DELETE, installed.intern)
    await machine.until_gone(installed.intern)
    await until(lambda: not slack._sockets)  # noqa: SLF001 - nobody is connected any more
