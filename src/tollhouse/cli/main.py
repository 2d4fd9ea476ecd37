"""The entry point: the commands, and how an error leaves the program.

    0    done
    1    the server refused, or cannot be reached; or a check found something
    2    a wrong option, file, setting or data folder: nothing was made, nothing was asked
    3    a batch that was watched is completed, but some of its requests failed
    4    a batch ended as failed, expired or cancelled
    130  Ctrl-C

Every error is one line on standard error (the settings: one line for each mistake), without a
stack trace. What is imported here is loaded by every command; the rest is imported by the command
that needs it.
"""

import io
import sys
from typing import Annotated

import typer
import typer.core
import typer.main

from tollhouse.cli.commands import (
    accounts,
    activity,
    audit,
    batch,
    config,
    credits,  # noqa: A004 - the noun that it is about
    egress,
    generation,
    intern_chat,
    key,
    keys,
    ledger,
    models,
    serve,
    users,
    vault,
    workspaces,
)
from tollhouse.cli.commands.bootstrap import bootstrap
from tollhouse.cli.commands.estimate import estimate
from tollhouse.cli.commands.logs import logs
from tollhouse.cli.commands.migrate import migrate
from tollhouse.cli.commands.status import status
from tollhouse.cli.commands.version import version
from tollhouse.cli.control import control_command, examples
from tollhouse.cli.failures import CommandFailed
from tollhouse.kernel.start import StartError

INTERRUPTED = 130

app = typer.Typer(
    name="tollhouse",
    help="Tollhouse: a self-hosted inference gateway.\n\n"
    "`tollhouse serve` runs it. All other commands talk to the server of the data folder, or do "
    "its work while none runs; --base-url names a remote one.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option(
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
# The module of chats adds its commands to those of interns, whose group it names as its own.
for _group in (
    *(accounts, workspaces, users, keys, credits, activity, ledger),
    *(config, models, batch, intern_chat, vault, egress, audit, key, generation),
):
    app.add_typer(_group.app)
control_command(
    app,
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


def main() -> int:
    """Run the command line and return its exit code."""
    _prepare_streams()
    try:
        command = typer.main.get_command(app)
        command(_json_at_its_command(command, sys.argv[1:]), prog_name="tollhouse")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except (StartError, CommandFailed) as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


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


def _prepare_streams() -> None:
    """Make sure that printing cannot end a command before its work is done."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started us
            setattr(sys, name, io.StringIO())
        elif isinstance(stream, io.TextIOWrapper):
            # A name that the terminal's encoding lacks looks odd.
            stream.reconfigure(errors="backslashreplace")
