"""Makes a command out of a function that talks to a server.

    @control_command(app, "show", "tollhouse accounts show 1b9d6bcd")
    async def show(server: Server, account: Annotated[str, Argument()]) -> Record:
        '''Show an account.'''

The function names its own parameters; the command gets the options that say which server is meant
and how the result looks. What the function returns is printed. One that prints by itself, as things
come, names `as_json` among its parameters and is told how they are to look.
"""

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Concatenate, ParamSpec, cast

import typer
from typer.core import TyperCommand

from tollhouse.cli import output
from tollhouse.cli.client import Server, connect
from tollhouse.cli.options import Account, ApiKey, BaseUrl, Config, DataDir, Json
from tollhouse.cli.references import chosen_account
from tollhouse.cli.target import Flags, Folder, Remote, choose
from tollhouse.kernel.secret import Secret
from tollhouse.kernel.start import StartError

P = ParamSpec("P")
Work = Callable[Concatenate[Server, P], Awaitable[output.Shown]]

_COMMON: Mapping[str, tuple[Any, object]] = {
    "data_dir": (DataDir, None),
    "config": (Config, None),
    "base_url": (BaseUrl, None),
    "api_key": (ApiKey, None),
    "as_json": (Json, False),
}


def noun(name: str, text: str) -> typer.Typer:
    """Return an empty group of commands about one noun."""
    return typer.Typer(name=name, help=text, no_args_is_help=True, rich_markup_mode=None)


def examples(*lines: str) -> str:
    """Return lines to paste, as the end of a help page."""
    # The control character keeps the lines as they are.
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def control_command(
    app: typer.Typer,
    name: str,
    *lines: str,
    dashes: bool = False,
    by_key: bool = False,
    alone: Callable[P, output.Shown | None] | None = None,
    surplus: str | None = None,
) -> Callable[[Work[P]], Work[P]]:
    """Register a function as a control command.

    Args:
        app: The group.
        name: What the command is called in it.
        lines: Examples for its help page.
        dashes: Whether an argument may begin with a dash, as a negative number does.
        by_key: Whether it acts for the key in TOLLHOUSE_API_KEY, also on a data folder.
        alone: Does what can be done without a server; None from it where one is needed.
        surplus: What to say of an argument too many; it is not repeated.
    """

    def register(work: Work[P]) -> Work[P]:
        own = list(inspect.signature(work).parameters.values())[1:]
        in_account = any(each.annotation == Account for each in own)

        def command(**given: Any) -> None:  # noqa: ANN401 - as typer passes them
            _run(work, given, by_key=by_key, in_account=in_account, alone=alone)

        parameters = [_keyword(each) for each in own if each.name not in _COMMON]
        parameters += [
            inspect.Parameter(
                option, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
            )
            for option, (annotation, default) in _COMMON.items()
        ]
        command.__name__ = work.__name__
        # What typer reads the options from.
        command.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        app.command(
            name,
            cls=None if surplus is None else _discreet(surplus),
            help=inspect.getdoc(work),
            epilog=examples(*lines),
            context_settings={
                "ignore_unknown_options": dashes,
                "allow_extra_args": surplus is not None,
            },
        )(command)
        return work

    return register


def _keyword(parameter: inspect.Parameter) -> inspect.Parameter:
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def _discreet(surplus: str) -> type[TyperCommand]:
    class Discreet(TyperCommand):
        # An argument too many may be a secret, so nothing repeats it.

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer's own
            rest = super().parse_args(ctx, args)
            if rest:
                ctx.fail(surplus)
            return rest

    return Discreet


def _run(
    work: Callable[..., Awaitable[output.Shown]],
    given: dict[str, Any],
    *,
    by_key: bool,
    in_account: bool,
    alone: Callable[..., output.Shown | None] | None,
) -> None:
    _require_text(given)
    as_json = given.pop("as_json")
    if "as_json" in inspect.signature(work).parameters:
        given["as_json"] = as_json
    api_key = given.pop("api_key")
    flags = Flags(
        base_url=given.pop("base_url"),
        api_key=None if api_key is None else Secret(api_key),
        data_dir=given.pop("data_dir"),
        config=given.pop("config"),
    )
    target = choose(flags, os.environ, by_key=by_key)
    shown = None if alone is None else alone(**given)
    if shown is None:
        shown = asyncio.run(_ask(work, target, given, in_account=in_account))
    output.show(shown, output.style(as_json=as_json))
    if isinstance(shown, output.Report | output.Written) and shown.exit_code:
        raise typer.Exit(shown.exit_code)


def _require_text(given: Mapping[str, object]) -> None:
    for value in given.values():
        texts = cast("list[object]", value) if isinstance(value, list) else [value]
        try:
            "".join(map(str, texts)).encode()
        except UnicodeEncodeError:
            message = "an argument holds bytes that are no UTF-8 text"
            raise StartError(message) from None


async def _ask(
    work: Callable[..., Awaitable[output.Shown]],
    target: Remote | Folder,
    given: dict[str, Any],
    *,
    in_account: bool,
) -> output.Shown:
    async with connect(target) as server:
        if in_account and not given.get("installation"):
            given["account"] = await chosen_account(server, given["account"])
        return await work(server, **given)


def changes(**given: object) -> dict[str, object]:
    """Return the fields of a body that were given."""
    return {name: value for name, value in given.items() if value is not None}


def some(body: dict[str, object]) -> dict[str, object]:
    """Return the body of a change that changes something.

    Raises:
        StartError: Nothing was given.
    """
    if not body:
        message = "nothing to change: give at least one option; --help lists them"
        raise StartError(message)
    return body
