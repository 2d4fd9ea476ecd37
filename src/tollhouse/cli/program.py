"""All commands, and how they read their arguments."""

from collections.abc import Sequence
from typing import Annotated

import typer
import typer.core
import typer.main
from typer import Option

from tollhouse.cli.commands import audit, batch, byok, egress, serve, vault
from tollhouse.cli.commands.accounts import accounts_app, users_app, workspaces_app
from tollhouse.cli.commands.credits import credits_app, ledger_app
from tollhouse.cli.commands.inference import activity_app, estimate, generation_app, models_app
from tollhouse.cli.commands.intern import intern_app
from tollhouse.cli.commands.keys import key_app, keys_app
from tollhouse.cli.commands.setup import bootstrap, config_app, logs, migrate, status, version
from tollhouse.cli.control import CommandGroup, examples

app = CommandGroup(
    "tollhouse",
    "Tollhouse: a self-hosted inference gateway.\n\n"
    "`tollhouse serve` runs it. All other commands talk to the server of the data folder, or do "
    "its work while none runs; --base-url names a remote one.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        Option(
            "--version",
            help="Print the version of this program.",
            is_eager=True,
            callback=_show_version,
        ),
    ] = False,
) -> None:
    pass


app.add_typer(serve.app)
app.command(
    epilog=examples(
        "tollhouse bootstrap --data-dir ./data",
        "tollhouse bootstrap --data-dir ./data --json | jq -r .api_key",
    )
)(bootstrap)
app.command(epilog=examples("tollhouse migrate", "tollhouse migrate --check"))(migrate)
for _group in (
    *(accounts_app, workspaces_app, users_app, keys_app, credits_app, activity_app, ledger_app),
    *(config_app, models_app, byok.app, batch.app, intern_app, vault.app, egress.app),
    *(audit.app, key_app, generation_app),
):
    app.add_typer(_group)
app.control(
    "estimate",
    "TOLLHOUSE_API_KEY=sk-th-v1-... tollhouse estimate request.json --base-url URL",
    "tollhouse estimate --endpoint messages - --json --base-url URL",
    by_key=True,
)(estimate)
app.command(epilog=examples("tollhouse status", "tollhouse status --json"))(status)
app.command(
    epilog=examples("tollhouse logs -f", "tollhouse logs -n 20 --level warning --json | jq .event")
)(logs)
app.command(epilog=examples("tollhouse version"))(version)


def run(args: Sequence[str]) -> None:
    """Run a command; a `SystemExit` carries its exit code.

    Raises:
        StartError: An option, a file, a setting or the data folder is wrong.
        CommandFailed: The server refused, or cannot be reached.
    """
    command = typer.main.get_command(app)
    command(_json_at_its_command(command, list(args)), prog_name="tollhouse")


def _json_at_its_command(command: object, args: list[str]) -> list[str]:
    """Move a `--json` that stands before the command behind it, where its option is."""
    at, early = 0, 0
    while isinstance(command, typer.core.TyperGroup) and at < len(args):
        if args[at] == "--json":
            early += 1
        elif args[at].startswith("-"):
            break
        else:
            command = command.commands.get(args[at])
        at += 1
    if not early:
        return args
    before = [each for each in args[:at] if each != "--json"]
    return [*before, "--json", *args[at:]]
