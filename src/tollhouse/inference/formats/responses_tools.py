"""The tools of a responses request as functions that every format has, and their calls back. Pure.

    tools, additional_tools, tool_search_output: a tree of namespaces
        ── RequestTools ──▶ ToolDefinition: one name for each leaf, `own` says what it was
    a call's name ── call_form ──▶ CallForm: the type and the fields of the client's item

The client, not the provider, runs the tools of `RUN_BY_CLIENT`; their calls have their own types.

Source: https://platform.openai.com/docs/api-reference/responses/create for the tools and items;
the schemas are those of the calls' arguments there. Codex's tools without a namespace come in the
namespace `functions`, which it wants back.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.canonical import (
    FREEFORM_SCHEMA,
    OwnTool,
    ToolDefinition,
    with_grammar,
)
from tollhouse.inference.formats.kinds import TOOLS, refused
from tollhouse.inference.formats.sequencing import arguments_object
from tollhouse.inference.formats.tools import ToolNames
from tollhouse.inference.formats.wire import (
    NULL,
    Fields,
    encoder,
    given,
    raw,
    read_at,
)
from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


class Typed(msgspec.Struct):
    """The `type` of an object, which determines its other fields."""

    type: str | None = None


type_decoder: Final = msgspec.json.Decoder(Typed)


# Tools that the client runs


class ClientRun(NamedTuple):
    """A tool that the client runs, whose calls are items of a type of their own."""

    call: str
    """The type of a call; that of its result ends with `_output`."""
    field: str
    """The field of a call that holds its arguments."""
    description: str
    parameters: Raw
    fixed: Mapping[str, object] = {}
    """What the arguments hold beside that which the model writes."""
    beside: Mapping[str, object] = {}
    """The call's other fields."""

    def shown(self, arguments: str) -> Mapping[str, object]:
        """Return the arguments of a call as its item has them."""
        return {**self.fixed, **arguments_object(arguments)}

    def written(self, shown: Fields) -> str:
        """Return the arguments of an item as the model wrote them."""
        fixed = {
            name for name, value in self.fixed.items() if value or shown.get(name) == Raw(b"{}")
        }
        own = {name: each for name, each in shown.items() if each != NULL and name not in fixed}
        return encoder.encode(own).decode()


def _object(required: str, **properties: object) -> Raw:
    return raw({"type": "object", "properties": properties, "required": required.split()})


_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
RUN_BY_CLIENT: Final[Mapping[str, ClientRun]] = {
    "tool_search": ClientRun(
        "tool_search_call",
        "arguments",
        "Find tools that are not listed here, and make them available.",
        _object("query", query=_TEXT, limit=_NUMBER),
        beside={"execution": "client"},
    ),
    "shell": ClientRun(
        "shell_call",
        "action",
        "Run shell commands.",
        _object("commands", commands=_TEXTS, timeout_ms=_NUMBER, max_output_length=_NUMBER),
    ),
    "local_shell": ClientRun(
        "local_shell_call",
        "action",
        "Run a command, given as a list of its name and its arguments.",
        _object(
            "command",
            command=_TEXTS,
            working_directory=_TEXT,
            timeout_ms=_NUMBER,
            env={"type": "object", "additionalProperties": _TEXT},
            user=_TEXT,
        ),
        fixed={"type": "exec", "env": {}},
    ),
    "apply_patch": ClientRun(
        "apply_patch_call",
        "operation",
        "Create, update or delete a file; `diff` is a diff in V4A format, and not for deletions.",
        _object(
            "type path",
            type={"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
            path=_TEXT,
            diff=_TEXT,
        ),
    ),
}
CALLS_BY_CLIENT: Final[Mapping[str, str]] = {
    each.call: name for name, each in RUN_BY_CLIENT.items()
}
"""These tools by the types of their calls."""


class CallForm(NamedTuple):
    """The item in which a client gets the calls of a tool."""

    kind: str
    """The item's type."""
    named: Mapping[str, object]
    """The fields that name the tool."""
    run: ClientRun | None = None
    """Set if the item is of a type of its own."""


def call_form(name: str, own: OwnTool | None, *, freeform: bool) -> CallForm:
    """Return the form of a tool's calls."""
    kind = "custom_tool_call" if freeform else "function_call"
    if own is None:
        return CallForm(kind, {"name": name})
    run = RUN_BY_CLIENT.get(own.kind)
    if run is not None:
        return CallForm(run.call, run.beside, run)
    namespace = {} if own.namespace is None else {"namespace": own.namespace}
    return CallForm(kind, {"name": own.name, **namespace})


# All tools

_MOST_NAMESPACES: Final = 8
_PLAIN_NAMESPACE: Final = "functions"
_NAMED: Final = frozenset({"function", "custom"})
_DEFERRED: Final = re.compile(rb'"defer_loading"\s*:\s*true')


class _Grammar(msgspec.Struct):
    type: str | None = None
    syntax: str | None = None
    definition: str | None = None


class _Tool(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: Raw = NULL
    strict: bool | None = None
    format: _Grammar | None = None
    cache_control: Raw = NULL


class _BuiltIn(msgspec.Struct):
    description: str | None = None
    parameters: Raw = NULL
    execution: str | None = None
    environment: Typed | None = None


class _Namespace(msgspec.Struct):
    name: str
    tools: list[Raw]
    description: str | None = None


_tool = msgspec.json.Decoder(_Tool)
_built_in = msgspec.json.Decoder(_BuiltIn)
_namespace = msgspec.json.Decoder(_Namespace)
_fields = msgspec.json.Decoder(Fields | None)


class _Leaf(NamedTuple):
    """One tool of the tree."""

    kind: str
    namespaces: tuple[str, ...]
    definition: ToolDefinition
    """Under its own name."""

    @property
    def own(self) -> OwnTool:
        """What the client's calls name: of several namespaces the last."""
        namespace = self.namespaces[-1] if self.namespaces else None
        return OwnTool(self.kind, self.definition.name, namespace)


class RequestTools:
    """The tools of one request, each under one name."""

    def __init__(self, lists: Iterable[tuple[Sequence[Raw], str]]) -> None:
        """Read lists of tools, each with its path; a later tool replaces an earlier of its name.

        Raises `Invalid` for a tool that no other provider can be given.
        """
        self.told: list[str] = []
        """The kinds of tools that the model is told it does not have."""
        self.call_ids: dict[str, str] = {}
        """The ids of calls by the ids of their items, as far as they were read."""
        self.found: dict[str, Sequence[OwnTool]] = {}
        """The tools of each list, by its path."""
        self._hosted_search = False
        leaves: list[_Leaf] = []
        for tools, path in lists:
            read = list(self._leaves(tools, path, ()))
            self.found[path] = [leaf.own for leaf in read]
            leaves += read
        if self._hosted_search:
            leaves = [leaf for leaf in leaves if leaf.kind != "tool_search"]
        named = [leaf.own for leaf in leaves if leaf.kind in _NAMED]
        self._plain = {own.name for own in named if own.namespace is None}
        self._taken = {own.name for own in named if own.namespace in {None, _PLAIN_NAMESPACE}}
        self._names = ToolNames.of(map(self._path, leaves))
        self._by_own: dict[tuple[str | None, str], str] = {}
        self._anywhere: dict[str, list[str]] = {}
        """The names of the tools of a name, in whichever namespace."""
        self._of_type: dict[str, str] = {}
        found: dict[str, ToolDefinition] = {}
        for leaf in leaves:
            name, own = self._names.add(*self._path(leaf)), leaf.own
            if own.kind in _NAMED:
                if (own.namespace, own.name) not in self._by_own:
                    self._anywhere.setdefault(own.name, []).append(name)
                self._by_own[own.namespace, own.name] = name
            else:
                self._of_type[own.kind] = name
            is_plain = own.kind in _NAMED and name == own.name and own.namespace is None
            found[name] = msgspec.structs.replace(
                leaf.definition, name=name, own=None if is_plain else own
            )
        self.definitions = tuple(found.values())

    def name(self, name: str, namespace: str | None = None) -> str:
        """Return the name of a tool that a client calls by its own name and namespace."""
        known = self._by_own.get((namespace or None, name))
        if known is not None:
            return known
        if namespace:
            return self._names.add(namespace, name)
        if self._names.path(name) != (name,):
            # A client that sends back what it was not given.
            return name
        known = self._anywhere.get(name, ())
        return known[0] if len(known) == 1 else self._names.add(name)

    def name_of_type(self, kind: str) -> str:
        """Return the name of a tool that a client knows by its type."""
        return self._of_type.get(kind) or self._names.add(kind)

    def _path(self, leaf: _Leaf) -> tuple[str, ...]:
        name = leaf.definition.name
        if leaf.namespaces == (_PLAIN_NAMESPACE,) and name not in self._plain:
            return (name,)
        if leaf.kind not in _NAMED and name in self._taken:
            return ("", name)
        return (*leaf.namespaces, name)

    def _leaves(
        self, tools: Sequence[Raw], path: str, above: tuple[str, ...], about: str = ""
    ) -> Iterator[_Leaf]:
        for index, data in enumerate(tools):
            here = f"{path}[{index}]"
            kind = read_at(type_decoder, data, here).type
            rule = TOOLS[kind].rule if kind in TOOLS else "refused"
            if kind is None or rule == "refused":
                raise refused(TOOLS, kind, here)
            elif rule == "text":
                self.told += [] if kind in self.told else [kind]
            elif kind == "namespace":
                inner = read_at(_namespace, data, here)
                if len(above) == _MOST_NAMESPACES:
                    raise Invalid(f"{here}: at most {_MOST_NAMESPACES} namespaces within another.")
                said = f"{inner.name}: {inner.description}" if inner.description else ""
                yield from self._leaves(inner.tools, f"{here}.tools", (*above, inner.name), said)
            elif kind in RUN_BY_CLIENT:
                yield _Leaf(kind, (), self._run_by_client(kind, data, here, tools))
            else:
                definition = _definition(kind, data, here)
                if about and not index:
                    # Of all tools of the namespace; said once.
                    described = "\n\n".join(filter(None, [about, definition.description]))
                    definition = msgspec.structs.replace(definition, description=described)
                yield _Leaf(kind, above, definition)

    def _run_by_client(
        self, kind: str, data: Raw, path: str, beside: Sequence[Raw]
    ) -> ToolDefinition:
        tool, known = read_at(_built_in, data, path), RUN_BY_CLIENT[kind]
        if kind == "tool_search":
            deferred = any(_DEFERRED.search(bytes(each)) for each in beside)
            where = tool.execution or ("server" if deferred else "client")
            # All tools are given at once, so that a server's search has nothing to find.
            self._hosted_search = self._hosted_search or where == "server"
        if tool.environment is not None and tool.environment.type not in {None, "local"}:
            reason = "a shell of a provider's own cannot be had here; the client's is local."
            raise Invalid(f"{path}.environment: {reason}")
        read_at(_fields, tool.parameters, f"{path}.parameters")
        description = tool.description or known.description
        return ToolDefinition(kind, description, given(tool.parameters) or known.parameters)


def _definition(kind: str, data: Raw, path: str) -> ToolDefinition:
    tool = read_at(_tool, data, path)
    cache = given(tool.cache_control)
    if kind == "custom":
        rule = tool.format or _Grammar()
        description = with_grammar(tool.description, rule.syntax, rule.definition)
        return ToolDefinition(tool.name, description, FREEFORM_SCHEMA, cache=cache, freeform=True)
    read_at(_fields, tool.parameters, f"{path}.parameters")
    parameters = given(tool.parameters)
    return ToolDefinition(tool.name, tool.description, parameters, tool.strict, cache)
