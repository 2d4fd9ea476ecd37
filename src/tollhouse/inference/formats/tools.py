r"""Tools: the text of a call's arguments, of which servers send pieces in several ways, and names.

    '{"x":'  '"1"}'                one piece goes on with the one before (OpenAI, Anthropic)
    '{"x":'  '{"x":"1"}'           each says all of it, longer each time
    '{}'     '{"x":"1"}'           an empty object stands where nothing is known yet
    '{"x":"1"}'  '{"x": "1"}'      all of it once more at the end
    {"x": "1"}                     an object in place of its text
    '"{\"x\":\"1\"}"'              its text, written as JSON once more
    null  ''  'null'               nothing

What a client was shown cannot be taken back: an empty object and a text in a text are held back
until more comes or the call ends, and so is a piece that may be one of the first two kinds.

`ToolNames` gives the tools of one request names that another format or provider takes, and tells
them back:

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

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.wire import NULL, fields_decoder, try_decode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MARK: Final = re.compile(r"\\(?s:.)?|[\"{}\[\]]")
"""The delimiters of JSON; an escaped character is none."""
_SPACE: Final = " \t\r\n"
_NOTHING: Final = "null"
_EMPTY: Final = "{}"
_VALUE_FOLLOWS: Final = (":", ",", "[")
_text: Final = msgspec.json.Decoder(str)
_any: Final = msgspec.json.Decoder()


def arguments_text(given: Raw) -> str:
    """Return arguments as a text, which some servers send as an object."""
    if given == NULL:
        return ""
    text = try_decode(_text, given)
    return memoryview(given).tobytes().decode() if text is None else text


def whole_arguments(given: Raw | str) -> str:
    """Return the arguments of a whole call as the text of an object, where they are one."""
    text = arguments_text(given) if isinstance(given, Raw) else given
    if text.strip(_SPACE) in {"", _NOTHING}:
        return _EMPTY
    if text.lstrip(_SPACE).startswith('"'):
        inner = try_decode(_text, text)
        if inner is not None and try_decode(fields_decoder, inner) is not None:
            return inner
    return text


class ArgumentsScanner:
    """A text of JSON in pieces; scans each piece once."""

    def __init__(self) -> None:
        self.size = 0
        self._pieces: list[str] = []
        self._looked_at = 0
        """How many pieces are scanned."""
        self._depth = 0
        self._in_text = False
        self._escape = ""
        """A backslash at the end of the scanned text."""
        self._is_object: bool | None = None
        """None until the first JSON value is closed."""

    @property
    def text(self) -> str:
        """All pieces."""
        return "".join(self._pieces)

    def add(self, piece: str) -> None:
        """Take one more piece."""
        self._pieces.append(piece)
        self.size += len(piece)

    def is_complete(self) -> bool:
        """Return whether the arguments are one JSON object."""
        more = self._escape + "".join(self._pieces[self._looked_at :])
        self._looked_at = len(self._pieces)
        if self._is_object is None:
            if self._close(more):
                self._is_object = try_decode(fields_decoder, self.text) is not None
        elif more.strip(_SPACE):
            self._is_object = False
        return bool(self._is_object)

    def may_begin_value(self) -> bool:
        """Return whether a value may come next."""
        self.is_complete()
        return not self._in_text and self.text.rstrip(_SPACE).endswith(_VALUE_FOLLOWS)

    def _close(self, more: str) -> bool:
        """Return whether the first JSON value is closed within more text."""
        self._escape = ""
        for mark in _MARK.findall(more):
            if mark == '"':
                self._in_text = not self._in_text
            elif mark == "\\":
                self._escape = mark
            elif not self._in_text and len(mark) == 1:
                self._depth += 1 if mark in "{[" else -1
                if self._depth <= 0:
                    return True
        return False


class Arguments:
    """The arguments of one call so far."""

    def __init__(self) -> None:
        self._scanner = ArgumentsScanner()
        self._shown = 0
        """How many characters of the text were told."""
        self._withheld = False
        """Nothing is told yet: all of it is an empty object, whole objects, or a text in a text."""
        self._is_encoded = False
        self._doubtful = ""
        """A piece that says all of it, or goes on with what looks like it."""
        self._cumulative = False

    @property
    def text(self) -> str:
        """All of them so far."""
        return self._scanner.text

    @property
    def begun(self) -> bool:
        """Whether there are any."""
        return self._scanner.size > 0

    @property
    def complete(self) -> bool:
        """Whether they may be all: a JSON object."""
        if self._doubtful:
            return try_decode(fields_decoder, self._doubtful) is not None
        if self._is_encoded:
            return try_decode(_text, self._scanner.text) is not None
        return self._scanner.is_complete()

    def says_again(self, piece: str) -> bool:
        """Tell whether a piece says all of it once more, in other words or with more of it."""
        if not self.begun or not piece.lstrip(_SPACE).startswith("{"):
            return False
        if len(piece) > self._scanner.size and piece.startswith(self._scanner.text):
            return True
        if not self.complete:
            return False
        value = try_decode(_any, piece)
        return self._withheld or value == {} or value == try_decode(_any, self._scanner.text)

    def goes_on(self, piece: str) -> bool:
        """Take a piece that can only go on with those before, and return True."""
        if not piece or self._withheld or self._doubtful or not self.begun:
            return False
        if piece.lstrip(_SPACE).startswith("{"):
            return False
        self._scanner.add(piece)
        self._shown = self._scanner.size
        return True

    def add(self, piece: str) -> str:
        """Take a piece; return what is certain now and was not told."""
        if not piece or (piece == _NOTHING and not self.begun):
            return ""
        if self._withheld or not self.begun:
            return self._begin(piece)
        if self._doubtful:
            self._resolve(goes_on=not piece.startswith(self._doubtful))
        scanner = self._scanner
        if not piece.lstrip(_SPACE).startswith("{"):
            scanner.add(piece)
        elif len(piece) >= scanner.size and piece.startswith(scanner.text):
            if scanner.may_begin_value() and not self._cumulative:
                self._doubtful = piece
                return ""
            self._cumulative = True
            scanner.add(piece[scanner.size :])
        elif not (scanner.is_complete() and self.says_again(piece)):
            scanner.add(piece)
        return self._news(piece)

    def end(self) -> str:
        """Return what was held back, at the end of the call."""
        if self._doubtful:
            self._resolve(goes_on=try_decode(fields_decoder, self._doubtful) is None)
        if self._is_encoded and self._withheld:
            self._restart(whole_arguments(self._scanner.text))
        elif not self._scanner.text.strip(_SPACE):
            self._scanner.add(_EMPTY)
        self._withheld = False
        return self._news("")

    def _begin(self, piece: str) -> str:
        own = piece.strip(_SPACE)
        if self._is_encoded or not self.begun:
            self._scanner.add(piece)
            self._is_encoded = self._is_encoded or own.startswith('"')
            self._withheld = self._is_encoded or own == _EMPTY
        elif own.startswith("{") and own != _EMPTY:
            self._restart(piece)
            self._withheld = try_decode(fields_decoder, piece) is not None
        elif own not in {"", _EMPTY}:
            self._scanner.add(piece)
            self._withheld = False
        return self._news(piece)

    def _restart(self, text: str) -> None:
        self._scanner = ArgumentsScanner()
        self._scanner.add(text)

    def _resolve(self, *, goes_on: bool) -> None:
        self._cumulative = not goes_on
        so_far = self._scanner.size
        self._scanner.add(self._doubtful if goes_on else self._doubtful[so_far:])
        self._doubtful = ""

    def _news(self, piece: str) -> str:
        if self._withheld:
            return ""
        begins, self._shown = self._shown, self._scanner.size
        return piece if self._shown - begins == len(piece) else self._scanner.text[begins:]


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
