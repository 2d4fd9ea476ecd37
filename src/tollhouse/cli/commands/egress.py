"""`tollhouse egress`: programs that use secrets without seeing them."""

import asyncio
from typing import Annotated

import typer

from tollhouse.cli.client import connect
from tollhouse.cli.control import changes, examples, noun
from tollhouse.cli.options import Account, Config, DataDir
from tollhouse.cli.references import chosen_account, workspace_id
from tollhouse.cli.target import Folder

app = noun(
    "egress",
    "Programs behind the egress proxy, which puts secrets into requests on their way out. They "
    "need a server on this machine.",
)


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
        list[str], typer.Argument(metavar="COMMAND...", help="The program and its arguments.")
    ],
    workspace: Annotated[
        str,
        typer.Option(
            "--workspace",
            metavar="WORKSPACE",
            help="Id or slug of the workspace whose secrets it may use.",
        ),
    ],
    gateway: Annotated[
        bool,
        typer.Option(
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
    from tollhouse.cli.egress.run import run_behind_proxy

    async def work() -> int:
        async with connect(Folder(data_dir, config)) as server:
            chosen = await chosen_account(server, account)
            found = await workspace_id(server, workspace, chosen)
            wanted = {"workspace_id": found, **changes(account_id=chosen)}
            return await run_behind_proxy(server, wanted, command, gateway=gateway)

    raise typer.Exit(asyncio.run(work()))
