"""Gives the tools of one request names that another format or provider takes, and tells them back.

    names = ToolNames(OPENAI_NAMES)
    names.add("read")                  -> "read"               a legal name stays as it is
    names.add("mcp__files", "read")    -> "mcp__files__read"   a tool within a namespace
    names.add("notes.search")          -> "notes_search_1f0c2a9b7d"
    names.path("mcp__files__read")     -> ("mcp__files", "read")
    names.path("never added")          -> ("never added",)

A changed name ends with a hash of the whole path, and a path keeps its name in every request, so
that a conversation and a provider's cache see the same one. Only where two tools of a request want
the same name does the order decide: add tools before the calls of the history, and those without a
namespace first (`ToolNames.of` does). Pure.

Source: https://platform.openai.com/docs/api-reference/chat/create (64 of a-z, A-Z, 0-9, _ and -),
https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/implement-tool-use (128 of the same).
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SEPARATOR: Final = "__"
"""Between the parts of a path; the usual one in names of MCP's tools."""
_HASH_LENGTH: Final = 10
_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9_-]")


def joined(path: tuple[str, ...]) -> str:
    """Return the parts of a path as one name; a namespace may end with the separator already."""
    *namespaces, name = path
    return SEPARATOR.join([*(each.removesuffix(SEPARATOR) for each in namespaces), name])


class NameRule(NamedTuple):
    """What names a provider takes."""

    longest: int | None = None
    """The most characters; None for any number."""
    plain: bool = False
    """Whether it takes only letters, digits, `_` and `-`."""

    def legal(self, name: str) -> bool:
        """Return whether a name can be sent as it is."""
        fits = self.longest is None or len(name) <= self.longest
        return fits and bool(name) and not (self.plain and _ILLEGAL.search(name))

    def changed(self, path: tuple[str, ...], more: int = 0) -> str:
        """Return a legal name with a hash of the path; `more` lengthens the hash."""
        parts = "\0".join(path).encode("utf-8", "surrogatepass")
        digest = sha256(parts).hexdigest()[: _HASH_LENGTH + more]
        name = joined(path)
        name = _ILLEGAL.sub("_", name) if self.plain else name
        kept = name if self.longest is None else name[: self.longest - len(digest) - 1]
        return f"{kept}_{digest}"


ANY_NAME: Final = NameRule()
OPENAI_NAMES: Final = NameRule(64, plain=True)
ANTHROPIC_NAMES: Final = NameRule(128, plain=True)


LONGEST_CALL_ID: Final = 40
"""In the chat format. Source: OpenAI's answer "Expected a string with maximum length 40"."""
_PROOF_IN_ID: Final = "__thought__"
"""LiteLLM writes Gemini's signature of a call behind it, and reads it there again.

Source: https://docs.litellm.ai/blog/gemini_3, "thought signatures".
"""
_LONGEST_HASH: Final = 40


def short_id(given: str, longest: int) -> str:
    """Return a call's id as a provider takes it: a longer one becomes its hash, everywhere."""
    if len(given) <= longest or _PROOF_IN_ID in given:
        return given
    digest = sha256(given.encode("utf-8", "surrogatepass")).hexdigest()
    return f"call_{digest}"[: min(longest, len("call_") + _LONGEST_HASH)]


class ToolNames:
    """The names of one request's tools; a path is a tool's name after its namespaces."""

    def __init__(self, rule: NameRule = ANY_NAME) -> None:
        self._rule = rule
        self._names: dict[tuple[str, ...], str] = {}
        self._paths: dict[str, tuple[str, ...]] = {}

    @classmethod
    def of(cls, paths: Iterable[tuple[str, ...]], rule: NameRule = ANY_NAME) -> Self:
        """Return the names of some tools: names that can stay as they are go first."""
        names = cls(rule)
        for path in sorted(paths, key=lambda each: (len(each), not rule.legal(each[-1]))):
            names.add(*path)
        return names

    @property
    def changed(self) -> Mapping[str, tuple[str, ...]]:
        """The paths by name, of those tools whose name is not their path."""
        return {name: path for name, path in self._paths.items() if path != (name,)}

    def add(self, *path: str) -> str:
        """Return the name under which a tool is sent; the same for the same path."""
        name = self._names.get(path)
        if name is None:
            name = self._names[path] = self._new(path)
            self._paths[name] = path
        return name

    def path(self, name: str) -> tuple[str, ...]:
        """Return the path of a tool by its name; a name that was not added is its own."""
        return self._paths.get(name, (name,))

    def _new(self, path: tuple[str, ...]) -> str:
        name = joined(path)
        more = 0
        while name in self._paths or not self._rule.legal(name):
            name = self._rule.changed(path, more)
            more += 1
        return name
