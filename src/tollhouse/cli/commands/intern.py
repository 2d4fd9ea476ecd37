"""`tollhouse intern`: hosted agents, each in a sandbox of its own, and to work with one."""

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

from typer import Argument, Option

from tollhouse.cli.client import Server
from tollhouse.cli.commands.intern_files import archives_app, files_app
from tollhouse.cli.control import CommandGroup, changes, clearable, require_changes
from tollhouse.cli.errors import CommandFailed
from tollhouse.cli.options import Description, InternName, NewName
from tollhouse.cli.output import AlreadyWritten, Column, Item, Record, Report, Table, column
from tollhouse.cli.progress import show_status
from tollhouse.cli.references import find_intern, intern_path, list_interns
from tollhouse.cli.values import one_line
from tollhouse.kernel.errors import StartError
from tollhouse.sandbox.daemon.settings import LONGEST_NAME

intern_app = CommandGroup(
    "intern",
    "Interns: hosted agents, each in a sandbox of its own. They belong to the workspace of the API "
    "key in TOLLHOUSE_API_KEY.",
    by_key=True,
)
intern_app.add_typer(files_app)
intern_app.add_typer(archives_app)

_NOT_FOUND: Final = 404
_TIMED_OUT: Final = 408
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 1.0
_PAUSE_GROWTH: Final = 1.2
_FAILED: Final = frozenset({"failed", "destroy_failed"})
_SETTLED: Final = _FAILED | {"running", "stopped"}
"""Statuses in which nothing is under way."""
_SHOWN: Final = (
    *("id", "name", "status", "last_failure_message", "model", "hostname", "description"),
    *("vault_id", "attached_vault_id", "created_at", "updated_at"),
)
"""The fields that people see of one intern."""

Instructions = Annotated[
    str | None, Option("--instructions", metavar="TEXT", help="Its standing instructions.")
]
InstructionsFile = Annotated[
    Path | None, Option("--instructions-file", metavar="FILE", help="The same, from a file.")
]
Manual = Annotated[bool, Option("--manual", help="It asks before it does what needs an approval.")]
NoWait = Annotated[
    bool, Option("--no-wait", help="Return when the request is accepted, not when it is done.")
]


@intern_app.control(
    "create",
    "tollhouse intern create ada --provision",
    'tollhouse intern create bob --description "Reads the mail" --instructions-file bob.md',
    "tollhouse intern create eve --vault ID --json",
    "tollhouse intern create sam --slack",
)
async def create(
    server: Server,
    name: Annotated[
        str,
        Argument(
            metavar="NAME",
            help="2 to 17 characters: lower-case letters, digits and single hyphens, a letter "
            "first.",
        ),
    ],
    description: Description = None,
    instructions: Instructions = None,
    instructions_file: InstructionsFile = None,
    vault: Annotated[
        str | None,
        Option(metavar="ID", help="Another intern's vault, whose secrets it receives too."),
    ] = None,
    provision: Annotated[bool, Option("--provision", help="Start it at once.")] = False,
    slack: Annotated[
        bool, Option("--slack", help="Talk to it in Slack: print the manifest of its app.")
    ] = False,
    slack_events: Annotated[
        str | None,
        Option(
            metavar="URL",
            help="The same, with events that Slack sends over HTTP: this server's public address, "
            "with /v1.",
        ),
    ] = None,
    no_wait: NoWait = False,
) -> Report:
    """Make an intern with a vault of its own. Repeating the command makes no second one."""
    in_slack = slack or slack_events is not None
    body = changes(
        chat="slack" if in_slack else None,
        name=name,
        description=description or None,
        instructions=_instructions(instructions, instructions_file),
        vault_id=vault,
    )
    if in_slack and provision:
        raise CommandFailed("an intern in Slack starts once it is installed there")
    made = await server.send("POST", "/interns", {**body, "provision": provision})
    if in_slack:
        return _slack_report(made, slack_events)
    if provision and not no_wait:
        return await _settled(server, made["id"])
    note = None if provision else f"Have it run with: tollhouse intern provision {made['name']}"
    return _outcome_report(made, note)


def _slack_report(made: dict[str, Any], base_url: str | None) -> Report:
    """Return how an intern's app is made and installed; with a URL, Slack sends events there."""
    from tollhouse.interns.chat.channels.slack_format import manifest

    url = None if base_url is None else f"{base_url.rstrip('/')}{intern_path(made)}/slack/events"
    app = manifest(made["name"], url)
    proof = "Basic Information: App-Level Tokens (xapp-, connections:write)"
    if url is not None:
        proof = "Basic Information: Signing Secret"
    shown = {
        "id": made["id"],
        "name": made["name"],
        "status": made["status"],
        "manifest": json.dumps(app, separators=(",", ":")),
        "create_at": "https://api.slack.com/apps?new_app=1 (From a manifest), install it there",
        "tokens": f"OAuth & Permissions: Bot User OAuth Token (xoxb-); {proof}",
        "then": f"tollhouse intern install {made['name']} --allow USER_OR_CHANNEL",
    }
    return Report({**made, "manifest": app}, Record(shown))


@intern_app.control(
    "install",
    "tollhouse intern install ada --allow U012AB3CD --allow C098ZY7XW",
    "tollhouse intern install ada --allow U012AB3CD --self-drive --tokens-file tokens.txt",
    surplus="there is an argument too many. A token is none: other users of the machine could see "
    "it. Type the tokens when asked, pipe them in, or use --tokens-file.",
)
async def install(
    server: Server,
    intern: InternName,
    allow: Annotated[
        list[str],
        Option(
            metavar="ID",
            help="A Slack user (U...) or channel (C...) that may talk to it; may be repeated.",
        ),
    ],
    tokens_file: Annotated[
        str | None,
        Option(
            metavar="FILE",
            help="Where the app's tokens stand; - is standard input. Unless given they are asked "
            "for on a terminal, and read from standard input elsewhere.",
        ),
    ] = None,
    self_drive: Annotated[
        bool, Option("--self-drive", help="It does not ask before it acts.")
    ] = False,
    no_wait: NoWait = False,
) -> Report:
    """Install an intern's app in Slack, or give it other tokens, and start it if it waited.

    The tokens are the bot's (xoxb-) and the app's (xapp-) or its signing secret, with spaces or
    line breaks between them. They are sealed, and nobody can show them again.
    """
    from tollhouse.cli.vault_secrets import read_value

    found = await find_intern(server, intern)
    given = read_value(tokens_file, f"the tokens of {one_line(found['name'])}").reveal().split()
    body: dict[str, object] = {"service": "slack", "allowed": allow}
    for token in given:
        kinds = {"xoxb-": "bot_token", "xapp-": "app_token"}
        body[kinds.get(token[:5], "signing_secret")] = token
    if len(body) != len(given) + len(("service", "allowed")) or "bot_token" not in body:
        raise CommandFailed(
            "the tokens are one that begins with xoxb-, and one with xapp- or a signing secret"
        )
    body["approval_mode"] = "self-drive" if self_drive else "manual"
    installed = await server.send("POST", f"{intern_path(found)}/install", body)
    if no_wait or installed["status"] not in {"queued", "provisioning"}:
        return _outcome_report(installed)
    return await _settled(server, found["id"])


@intern_app.control(
    "list", "tollhouse intern list", "tollhouse intern list --status running --status failed"
)
async def list_(
    server: Server,
    status: Annotated[
        list[str] | None, Option(metavar="STATUS", help="Only those; may be repeated.")
    ] = None,
) -> Table:
    """List the interns of the workspace, newest first."""
    columns = ["id", "name", Column("status", _status), "model", column("created_at", "created")]
    return Table(await list_interns(server, ",".join(status) if status else None), columns)


@intern_app.control("show", "tollhouse intern show ada")
async def show(server: Server, intern: InternName) -> Report:
    """Show an intern."""
    return _report(await find_intern(server, intern))


@intern_app.control(
    "set",
    "tollhouse intern set ada --model openai/gpt-5",
    "tollhouse intern set ada --name grace --instructions-file grace.md",
)
async def set_(
    server: Server,
    intern: InternName,
    name: NewName = None,
    description: Description = None,
    instructions: Instructions = None,
    instructions_file: InstructionsFile = None,
    model: Annotated[
        str | None, Option(metavar="MODEL", help='Its model; "" for the workspace\'s default.')
    ] = None,
) -> Report:
    """Change the given fields of an intern; they apply from its next start."""
    given = _instructions(instructions, instructions_file)
    body = changes(name=name)
    body |= clearable(description=description, instructions=given, model=model)
    require_changes(body)
    found = await find_intern(server, intern)
    return _report(await server.send("PATCH", intern_path(found), body))


@intern_app.control(
    "provision", "tollhouse intern provision ada", "tollhouse intern provision ada --no-wait"
)
async def provision(server: Server, intern: InternName, no_wait: NoWait = False) -> Report:
    """Start an intern: for the first time, after `suspend`, or after it failed."""
    found = await find_intern(server, intern)
    await server.send("POST", f"{intern_path(found)}/provision")
    if no_wait:
        return _outcome_report(await server.get(intern_path(found)))
    return await _settled(server, found["id"])


@intern_app.control("suspend", "tollhouse intern suspend ada")
async def suspend(server: Server, intern: InternName) -> Report:
    """Stop an intern and keep its files; `provision` starts it again."""
    found = await find_intern(server, intern)
    try:
        await server.send("POST", f"{intern_path(found)}/suspend")
    except CommandFailed as error:
        if error.status != _TIMED_OUT:
            raise
        # It takes longer than a request may, and goes on.
    return await _settled(server, found["id"], leaving="running")


@intern_app.control(
    "delete",
    "tollhouse intern delete ada",
    "tollhouse intern delete ada --lose-files",
    confirm="Delete the intern {intern} with its vault?",
)
async def delete(
    server: Server,
    intern: InternName,
    lose_files: Annotated[
        bool, Option("--lose-files", help="Delete it even if its files cannot be archived.")
    ] = False,
    no_wait: NoWait = False,
) -> Report:
    """Remove an intern with its vault; its files are archived first."""
    found = await find_intern(server, intern)
    body = {"acknowledge_workspace_loss": lose_files}
    await server.send("DELETE", intern_path(found), body)
    if not no_wait:
        return await _settled(server, found["id"])
    return _gone(found["id"], deleted=False)


@intern_app.control(
    "logs", "tollhouse intern logs ada", "tollhouse intern logs ada --lines 1000 --json"
)
async def logs(
    server: Server,
    intern: InternName,
    lines: Annotated[
        int, Option(min=1, max=5_000, help="How many lines, counted from the last.")
    ] = 100,
) -> Table:
    """Show an intern's log on the server: steps of its starts, failures, ends."""
    found = await find_intern(server, intern)
    told = await server.get(f"{intern_path(found)}/logs", limit=lines)
    return Table(told["data"], ["at", column("text", "what happened")])


def _gone(intern_id: str, *, deleted: bool = True) -> Report:
    item = {"id": intern_id, "deleted": deleted}
    return Report(item, Record(item))


def _instructions(text: str | None, file: Path | None) -> str | None:
    if file is None:
        return text
    if text is not None:
        raise CommandFailed("give --instructions or --instructions-file, not both")
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise CommandFailed(f"{file}: cannot be read ({reason})") from None


async def _settled(server: Server, intern_id: str, *, leaving: str | None = None) -> Report:
    """Wait until nothing is under way with an intern, show each step meanwhile, and report it.

    The status that it is about to leave does not count.
    """
    path, pause = intern_path({"id": intern_id}), _FIRST_PAUSE_SECONDS
    with show_status() as show_step:
        while True:
            try:
                intern = await server.get(path)
            except CommandFailed as error:
                if error.status != _NOT_FOUND:
                    raise
                return _gone(intern_id)
            show_step(_status(intern))
            if intern["status"] in _SETTLED and intern["status"] != leaving:
                return _outcome_report(intern)
            await asyncio.sleep(pause)
            pause = min(pause * _PAUSE_GROWTH, _LONGEST_PAUSE_SECONDS)


def _report(intern: Item, note: str | None = None, exit_code: int = 0) -> Report:
    shown = {**intern, "status": _status(intern)}
    if intern["model"] is None:
        shown["model"] = "the workspace's default"
    fields = [name for name in _SHOWN if name in intern]
    return Report(intern, Record(shown, fields, note), exit_code)


def _outcome_report(intern: Item, note: str | None = None) -> Report:
    """Return what is shown after an operation; an exit code of 1 where the intern has failed."""
    return _report(intern, note, exit_code=1 if intern["status"] in _FAILED else 0)


def _status(intern: Item) -> str:
    """Return an intern's status, with the step of a boot that is under way."""
    step = intern["progress"]
    if step is None:
        return str(intern["status"])
    return f"{intern['status']} ({step['step_number']}/{step['total_steps']}: {step['step_label']})"


@intern_app.control(
    "attach",
    "tollhouse intern attach ada",
    "tollhouse intern attach ada --session build",
    "tollhouse intern attach ada < setup.sh",
)
async def attach(
    server: Server,
    intern: InternName,
    session: Annotated[
        str | None, Option(metavar="NAME", help="Which of its terminals; main unless given.")
    ] = None,
) -> AlreadyWritten:
    """Attach to a shell of a running intern. Ctrl-] q leaves it, and it runs on.

    Where standard input is no terminal, it is a script that a shell of the intern runs: its output
    is this command's, and so is its exit code.
    """
    from tollhouse.cli.interns.daemon import fetch_access
    from tollhouse.cli.interns.terminal import attach as attach_to

    found = await find_intern(server, intern)
    renew = partial(fetch_access, server, found)
    name = one_line(found["name"])
    code = await attach_to(await renew(), name=name, session=session, renew=renew)
    return AlreadyWritten("", exit_code=code)


@intern_app.control(
    "chat",
    "tollhouse intern chat ada",
    'tollhouse intern chat ada "Which files are here?" --manual',
    "tollhouse intern chat ada --session notes --yes < task.txt",
)
async def chat(
    server: Server,
    intern: InternName,
    prompt: Annotated[
        str | None,
        Argument(
            metavar="[PROMPT]",
            help="The prompt. Unless given it is read: each line on a terminal, otherwise "
            "all of standard input.",
        ),
    ] = None,
    session: Annotated[
        str | None, Option(metavar="ID", help="The session to continue; default: a new one.")
    ] = None,
    manual: Manual = False,
    yes: Annotated[
        bool, Option("--yes", help="Allow each action that it asks for once, without asking you.")
    ] = False,
    wait: Annotated[bool, Option("--wait", help="Wait while it works for somebody else.")] = False,
    as_json: bool = False,
) -> AlreadyWritten:
    """Talk to a running intern: what it answers is printed as it comes.

    Its questions are asked on the terminal, and refused where there is none. Ctrl-C stops the run.
    """
    from tollhouse.cli.interns.chat_session import ChatOptions, run_chat

    if session is not None and not 1 <= len(session) <= LONGEST_NAME:
        raise StartError(f"--session takes 1 to {LONGEST_NAME} characters")
    options = ChatOptions(
        server, await find_intern(server, intern), session, manual=manual, yes=yes, wait=wait
    )
    return AlreadyWritten("", exit_code=await run_chat(options, prompt, as_json=as_json))


@intern_app.control(
    "invoke",
    'tollhouse intern invoke ada "Sort the inbox"',
    'tollhouse intern invoke ada "Now the archive" --session ID --json',
)
async def invoke(
    server: Server,
    intern: InternName,
    prompt: Annotated[str, Argument(metavar="PROMPT", help="What it is to do.")],
    session: Annotated[
        str | None,
        Option(metavar="ID", help="A session that this command has begun; default: a new one."),
    ] = None,
) -> Report:
    """Have a running intern do something, and do not wait for it; it asks nobody."""
    found = await find_intern(server, intern)
    body = changes(input=prompt, session_id=session)
    item = await server.send("POST", f"{intern_path(found)}/invoke", body)
    return Report(item, Record(item))


@intern_app.control("acp", "tollhouse intern acp ada", "tollhouse intern acp ada --manual")
async def acp(server: Server, intern: InternName, manual: Manual = False) -> AlreadyWritten:
    """Let an editor talk to an intern: the Agent Client Protocol on standard input and output.

    Editors start it by themselves; `docs/guide/interns-chat.md` has settings for some.
    """
    from tollhouse.cli.interns.acp import serve_acp

    await serve_acp(server, intern, manual=manual)
    return AlreadyWritten("")
