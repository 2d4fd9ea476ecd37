"""Makes a command out of a function that talks to a server.

    app = CommandGroup("accounts", "Accounts: who pays.")

    @app.control("show", "tollhouse accounts show 1b9d6bcd")
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
from typing import Annotated, Any, Concatenate, ParamSpec, cast

import typer
from typer.core import TyperCommand

from tollhouse.cli import output
from tollhouse.cli.client import Server, connect
from tollhouse.cli.options import Account, ApiKey, BaseUrl, Config, DataDir, Json, confirm_option
from tollhouse.cli.references import chosen_account
from tollhouse.cli.target import ServerFlags, choose_server
from tollhouse.cli.values import is_unicode
from tollhouse.kernel.errors import StartError
from tollhouse.kernel.secret import Secret

P = ParamSpec("P")
Work = Callable[Concatenate[Server, P], Awaitable[output.CommandResult]]

_COMMON: Mapping[str, tuple[Any, object]] = {
    "data_dir": (DataDir, None),
    "config": (Config, None),
    "base_url": (BaseUrl, None),
    "api_key": (ApiKey, None),
    "as_json": (Json, False),
}


def examples(*lines: str) -> str:
    """Return lines to paste, as the end of a help page."""
    # The control character keeps the lines as they are.
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


class CommandGroup(typer.Typer):
    """Commands about one noun; without a name they stand beside the nouns.

    With `by_key` they act for the key in TOLLHOUSE_API_KEY, also on a data folder.
    """

    def __init__(
        self,
        name: str | None = None,
        text: str | None = None,
        *,
        by_key: bool = False,
        **more: Any,  # noqa: ANN401 - as typer has it
    ) -> None:
        super().__init__(name=name, help=text, no_args_is_help=True, rich_markup_mode=None, **more)
        self._by_key = by_key

    def control(
        self,
        name: str,
        *lines: str,
        dashes: bool = False,
        by_key: bool | None = None,
        confirm: str | None = None,
        alone: Callable[P, output.CommandResult | None] | None = None,
        surplus: str | None = None,
    ) -> Callable[[Work[P]], Work[P]]:
        """Register a function as a control command.

        Args:
            name: What the command is called in the group.
            lines: Examples for its help page.
            dashes: Whether an argument may begin with a dash, as a negative number does.
            by_key: What the group says, unless given.
            confirm: Asked before anything is done, with the names of arguments in braces.
            alone: Does what can be done without a server; None from it where one is needed.
            surplus: What to say of an argument too many; it is not repeated.
        """
        by_key = self._by_key if by_key is None else by_key

        def register(work: Work[P]) -> Work[P]:
            own = list(inspect.signature(work).parameters.values())[1:]
            in_account = any(each.annotation == Account for each in own)

            def command(**given: Any) -> None:  # noqa: ANN401 - as typer passes them
                if confirm is not None:
                    del given["yes"]  # it was asked when the options were read
                _run(work, given, by_key=by_key, in_account=in_account, alone=alone)

            parameters = [
                each.replace(kind=each.KEYWORD_ONLY) for each in own if each.name not in _COMMON
            ]
            if confirm is not None:
                parameters.append(_option("yes", Annotated[bool, confirm_option(confirm)], False))
            parameters += [_option(option, *about) for option, about in _COMMON.items()]
            command.__name__ = work.__name__
            # What typer reads the options from.
            command.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
            command.__annotations__ = {each.name: each.annotation for each in parameters}
            self.command(
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


def _option(name: str, annotation: object, default: object) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


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
    work: Callable[..., Awaitable[output.CommandResult]],
    given: dict[str, Any],
    *,
    by_key: bool,
    in_account: bool,
    alone: Callable[..., output.CommandResult | None] | None,
) -> None:
    _require_text(given)
    as_json = given.pop("as_json")
    if "as_json" in inspect.signature(work).parameters:
        given["as_json"] = as_json
    api_key = given.pop("api_key")
    flags = ServerFlags(
        base_url=given.pop("base_url"),
        api_key=None if api_key is None else Secret(api_key),
        data_dir=given.pop("data_dir"),
        config=given.pop("config"),
    )
    target = choose_server(flags, os.environ, by_key=by_key)

    async def ask() -> output.CommandResult:
        async with connect(target) as server:
            if in_account and not given.get("installation"):
                given["account"] = await chosen_account(server, given["account"])
            return await work(server, **given)

    shown = (None if alone is None else alone(**given)) or asyncio.run(ask())
    output.print_result(shown, as_json=as_json)
    if isinstance(shown, output.Report | output.AlreadyWritten) and shown.exit_code:
        raise typer.Exit(shown.exit_code)


def _require_text(given: Mapping[str, object]) -> None:
    for value in given.values():
        texts = cast("list[object]", value) if isinstance(value, list) else [value]
        if not is_unicode("".join(map(str, texts))):
            raise StartError("an argument holds bytes that are no UTF-8 text")


def changes(**given: object) -> dict[str, object]:
    """Return the fields of a body that were given."""
    return {name: value for name, value in given.items() if value is not None}


def clearable(**given: str | None) -> dict[str, object]:
    """Return the fields of a body that were given; an empty text clears one."""
    return {name: text or None for name, text in given.items() if text is not None}


def require_changes(body: dict[str, object]) -> dict[str, object]:
    """Return the body of a change; StartError if nothing was given to change."""
    if not body:
        raise StartError("nothing to change: give at least one option; --help lists them")
    return body
