"""`tollhouse egress`: programs that use secrets without seeing them."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Final

import typer
from typer import Argument, Option

from tollhouse.cli.client import Server, connect
from tollhouse.cli.control import CommandGroup, changes, examples
from tollhouse.cli.options import Account, Config, DataDir
from tollhouse.cli.references import chosen_account, resource_id
from tollhouse.cli.target import DataFolderServer
from tollhouse.kernel.errors import StartError

app = CommandGroup(
    "egress",
    "Programs behind the egress proxy, which puts secrets into requests on their way out. They "
    "need a server on this machine.",
)

_BY_SIGNAL: Final = 128
_PASSED_ON: Final = (signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C reaches the program by itself: it is in the terminal's foreground, too."""


class ProgramNotExecutable(StartError):
    """The program cannot be run; the exit codes are a shell's."""

    exit_code: ClassVar[int] = 126


class ProgramNotFound(StartError):
    """There is no such program."""

    exit_code: ClassVar[int] = 127


@app.callback()
def _group() -> None:
    # With a single command typer would leave its name out.
    pass


@app.command(
    epilog=examples(
        "tollhouse egress run --workspace default -- curl -H "
        "'Authorization: Bearer {{secret:github_token}}' https://api.github.com/user",
        "tollhouse egress run --workspace lab --gateway -- my-agent --task notes.txt",
    ),
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
def run(
    command: Annotated[
        list[str], Argument(metavar="COMMAND...", help="The program and its arguments.")
    ],
    workspace: Annotated[
        str,
        Option(metavar="WORKSPACE", help="Id or slug of the workspace whose secrets it may use."),
    ],
    gateway: Annotated[
        bool,
        Option(
            "--gateway",
            help="Point clients of OpenAI's and Anthropic's at the gateway; what they spend is "
            "the workspace's.",
        ),
    ] = False,
    account: Account = None,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Run a program whose requests receive the secrets of a workspace.

    It writes {{secret:NAME}} in a header, and the proxy puts the value in on the way to a host that
    the secret is bound to; the program never sees it. Proxy and certificates are set in its
    environment. Its exit code is this command's.
    """

    async def work() -> int:
        async with connect(DataFolderServer(data_dir, config)) as server:
            chosen = await chosen_account(server, account)
            found = await resource_id(server, "workspace", workspace, chosen)
            wanted = {"workspace_id": found, **changes(account_id=chosen)}
            return await _run_behind_proxy(server, wanted, command, gateway=gateway)

    raise typer.Exit(asyncio.run(work()))


async def _run_behind_proxy(
    server: Server, wanted: Mapping[str, object], command: Sequence[str], *, gateway: bool
) -> int:
    """Run a program and return its exit code; 128 and a signal's number if one ended it."""
    from tollhouse.sandbox.daemon.forwarder import forwarding
    from tollhouse.vault.egress.session_folder import environment, gateway_environment

    async with server.hold_open("/egress-sessions", wanted) as session:
        folder = Path(session["folder"])
        async with forwarding(str(folder / "proxy.sock"), 0, most=None) as port:
            proxy = f"http://tollhouse:{session['password']}@127.0.0.1:{port}"
            given = environment(proxy, folder, os.environ.get("NODE_OPTIONS", ""))
            given |= gateway_environment() if gateway else {}
            return await _run(command, {**os.environ, **given})


async def _run(command: Sequence[str], env: Mapping[str, str]) -> int:
    try:
        process = await asyncio.create_subprocess_exec(*command, env=env)
    except FileNotFoundError:
        raise ProgramNotFound(f"{command[0]}: there is no such program") from None
    except OSError as error:
        raise ProgramNotExecutable(
            f"{command[0]}: cannot be run ({error.strerror or error})"
        ) from None
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    for number in _PASSED_ON:
        loop.add_signal_handler(number, _pass_on, process, number)
    code = await process.wait()
    return code if code >= 0 else _BY_SIGNAL - code


def _pass_on(process: asyncio.subprocess.Process, number: int) -> None:
    if process.returncode is None:
        process.send_signal(number)
