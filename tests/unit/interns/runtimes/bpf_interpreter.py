"""An interpreter of classic BPF as the kernel runs it for seccomp."""

import struct
from collections.abc import Sequence

ALLOWED = "allowed"
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000


def verdict(program: bytes, audit: int, number: int, arguments: Sequence[int] = ()) -> str | int:
    """Return the verdict on a system call: `ALLOWED`, or its errno."""
    padded = [*arguments, *([0] * (6 - len(arguments)))]
    told = struct.pack("<IIQ6Q", number, audit, 0, *(each & (2**64 - 1) for each in padded))
    steps = list(struct.iter_unpack("<HBBI", program))
    at, word = 0, 0
    while True:
        code, if_true, if_false, operand = steps[at]
        at += 1
        if code == 0x20:
            (word,) = struct.unpack_from("<I", told, operand)
        elif code == 0x54:
            word &= operand
        elif code in {0x15, 0x25, 0x45}:
            holds = {0x15: word == operand, 0x25: word > operand, 0x45: bool(word & operand)}[code]
            at += if_true if holds else if_false
        elif code == 0x06 and operand == _ALLOW:
            return ALLOWED
        else:
            assert code == 0x06
            assert operand & 0xFFFF0000 == _ERRNO
            return operand & 0xFFFF
