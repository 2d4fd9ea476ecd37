"""`tollhouse intern chat` and `tollhouse intern acp`: to talk to an intern."""

from typing import Annotated

import typer

from tollhouse.cli.client import Server
from tollhouse.cli.commands.intern import Name, app
from tollhouse.cli.control import control_command
from tollhouse.cli.interns.lookup import find_intern
from tollhouse.cli.output import Written, one_line
from tollhouse.kernel.start import StartError
from tollhouse.sandbox.daemon.sessions.limits import LONGEST_NAME

Manual = Annotated[
    bool, typer.Option("--manual", help="It asks before it does what needs an approval.")
]


@control_command(
    app,
    "chat",
    "tollhouse intern chat ada",
    'tollhouse intern chat ada "Which files are here?" --manual',
    "tollhouse intern chat ada --session notes --yes < task.txt",
    by_key=True,
)
async def chat(
    server: Server,
    intern: Name,
    prompt: Annotated[
        str | None,
        typer.Argument(
            metavar="[PROMPT]",
            help="The prompt. Unless given it is read: each line on a terminal, otherwise "
            "all of standard input.",
        ),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(
            "--session", metavar="ID", help="The session to continue; default: a new one."
        ),
    ] = None,
    manual: Manual = False,
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Allow each action that it asks for once, without asking you."),
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait while it works for somebody else.")
    ] = False,
    as_json: bool = False,
) -> Written:
    """Talk to a running intern: what it answers is printed as it comes.

    Its questions are asked on the terminal, and refused where there is none. Ctrl-C stops the run.
    """
    from tollhouse.cli.interns.chat import Conversation
    from tollhouse.cli.interns.chat_talk import Manner, talk
    from tollhouse.cli.interns.chat_waiting import Waiting
    from tollhouse.kernel.ids import RandomIds

    if session is not None and not 1 <= len(session) <= LONGEST_NAME:
        message = f"--session takes 1 to {LONGEST_NAME} characters"
        raise StartError(message)
    found = await find_intern(server, intern)

    def begin(waiting: Waiting, anew: bool) -> Conversation:
        session_id = None if anew else session
        return Conversation(server, found, session_id or RandomIds().uuid(), waiting)

    model = one_line(found.get("model") or "the workspace's default model")
    manner = Manner(one_line(found["name"]), model, manual, yes, wait)
    return Written("", exit_code=await talk(begin, manner, prompt, as_json=as_json))


@control_command(
    app,
    "acp",
    "tollhouse intern acp ada",
    "tollhouse intern acp ada --manual",
    by_key=True,
)
async def acp(
    server: Server,
    intern: Name,
    manual: Manual = False,
) -> Written:
    """Let an editor talk to an intern: the Agent Client Protocol on standard input and output.

    Editors start it by themselves; `docs/guide/interns-chat.md` has settings for some.
    """
    from tollhouse.cli.interns.acp import serve

    await serve(server, intern, manual=manual)
    return Written("")
