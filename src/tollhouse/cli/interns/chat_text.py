"""Text that a terminal only shows. Pure.

What a model writes is shown, and never obeyed: no colours, no titles, no moved cursor, no writing
to the clipboard. Newlines and tabs stay.
"""

from __future__ import annotations

from typing import Final

_CONTROLS: Final = [*range(0x20), *range(0x7F, 0xA0)]
_KEPT: Final = {ord("\n"), ord("\t")}
_DIRECTIONS: Final = [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]
"""They turn the order of what is shown around, and so hide what a line does."""


def _shown(code: int) -> str:
    if code == ord("\r"):
        return ""  # a line's end, or a way to write over it
    if code < 0x20 or code == 0x7F:  # noqa: PLR2004 - ASCII
        return f"^{chr(code ^ 0x40)}"
    return f"\\u{code:04x}"


_TABLE: Final = {code: _shown(code) for code in [*_CONTROLS, *_DIRECTIONS] if code not in _KEPT}


def harmless(text: str) -> str:
    r"""Return a text with its control characters made visible: ESC as `^[`, others as `\u009b`.

    It may be cut anywhere: each character is looked at alone.
    """
    return text.translate(_TABLE)
