"""Messages between two of our processes, over a pipe or a socket.

    length of the rest (4 bytes, big-endian)    message (MessagePack)

A message is a `msgspec.Struct` with a tag, or one of a union of them. A `Channel` is one direction
of a conversation; the modules of both processes use the same one:

    ORDERS: Channel[Start | Stop] = Channel(Start | Stop, largest=65_536)

    await ORDERS.send(writer, Start(3))             asyncio: waits while the other side is slow
    ORDERS.send_blocking(sys.stdout.buffer, Stop())
    order = await ORDERS.reader(stream).receive()
    order = ORDERS.receive_blocking(sys.stdin.buffer)

It imports nothing but msgspec, since processes use it of which a hundred run on a small machine.

Source: https://github.com/msgpack/msgpack/blob/master/spec.md
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, BinaryIO, Final, Generic, TypeVar

import msgspec

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from types import UnionType

_LENGTH: Final = struct.Struct(">I")
_encoder: Final = msgspec.msgpack.Encoder()

M = TypeVar("M")


class ChannelError(Exception):
    """A channel cannot go on."""


class ChannelClosed(ChannelError, EOFError):
    """The other process has closed its side or is gone, maybe in the middle of a message."""


class MessageTooLong(ChannelError):
    """A message is longer than its channel allows."""

    def __init__(self, size: int, largest: int) -> None:
        super().__init__(f"a message has {size} bytes; {largest} are allowed")


class MalformedMessage(ChannelError):
    """What came is no message of this channel. The text says where, and none of its values."""


class Channel(Generic[M]):
    """One direction of a conversation."""

    def __init__(self, messages: type[M] | UnionType, *, largest: int) -> None:
        """Define it by a Struct with a tag, or a union of such, and the most bytes of a message."""
        self._decoder: msgspec.msgpack.Decoder[M] = msgspec.msgpack.Decoder(messages)
        self._largest = largest

    def encode(self, message: M) -> bytes:
        """Return a message as a frame.

        Raises:
            MessageTooLong: It is.
            UnicodeEncodeError: A text in it holds half of a surrogate pair.
            OverflowError: An integer in it has more than 64 bits.
        """
        frame = bytearray(_LENGTH.size)
        _encoder.encode_into(message, frame, _LENGTH.size)
        size = len(frame) - _LENGTH.size
        self._check(size)
        _LENGTH.pack_into(frame, 0, size)
        return bytes(frame)

    def decode(self, frame: bytes) -> M:
        """Return the message of a frame that came as a whole, as a datagram does.

        Raises:
            ChannelClosed: The frame is cut off.
            MessageTooLong: It says that it is longer than allowed.
            MalformedMessage: It is no frame, or its message is none of this channel.
        """
        head, body = frame[: _LENGTH.size], frame[_LENGTH.size :]
        if len(head) < _LENGTH.size:
            raise _closed(len(head), _LENGTH.size)
        size = self.size_of(head)
        if len(body) < size:
            raise _closed(len(body), size)
        return self.decode_body(body)

    async def send(self, writer: StreamWriter, message: M) -> None:
        """Write a message, and wait until the other process has read most of what was written.

        Raises:
            ChannelClosed: The other process reads no more.
            MessageTooLong: The message is.
        """
        if writer.is_closing():
            raise _closed()
        writer.write(self.encode(message))
        try:
            await writer.drain()
        except ConnectionError:
            raise _closed() from None

    def reader(self, stream: StreamReader) -> MessageReader[M]:
        """Return what reads this channel from a stream."""
        return MessageReader(self, stream)

    def send_blocking(self, file: BinaryIO, message: M) -> None:
        """Write a message to a file, buffered or not.

        Raises:
            BrokenPipeError: The other process reads no more.
            MessageTooLong: The message is.
        """
        rest = memoryview(self.encode(message))
        while rest:
            rest = rest[file.write(rest) :]
        file.flush()

    def receive_blocking(self, file: BinaryIO) -> M:
        """Read the next message from a file, buffered or not; it raises what `receive` does."""
        size = self.size_of(_read_exactly(file, _LENGTH.size))
        return self.decode_body(_read_exactly(file, size))

    def size_of(self, head: bytes) -> int:
        """Return the size of the message behind a length; `MessageTooLong` if it is too large."""
        (size,) = _LENGTH.unpack(head)
        self._check(size)
        return size

    def decode_body(self, body: bytes) -> M:
        """Return the message that stands behind a length; `MalformedMessage` if it is none."""
        try:
            return self._decoder.decode(body)
        except msgspec.ValidationError as error:
            raise MalformedMessage(_without_values(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedMessage(f"not MessagePack ({type(error).__name__})") from None

    def _check(self, size: int) -> None:
        if size > self._largest:
            raise MessageTooLong(size, self._largest)


class MessageReader(Generic[M]):
    """Reads the messages of a channel from a stream, one after the other.

    A `receive` may be cancelled at any point: the next one returns the message that it waited for.
    """

    def __init__(self, channel: Channel[M], stream: StreamReader) -> None:
        self._channel = channel
        self._stream = stream
        self._size: int | None = None
        """Of the message whose length has come already."""

    async def receive(self) -> M:
        """Return the next message.

        Raises:
            ChannelClosed: There is none: the other process is gone.
            MessageTooLong: It is longer than allowed; nothing of it was read.
            MalformedMessage: It is none of this channel.
        """
        if self._size is None:
            self._size = self._channel.size_of(await self._exactly(_LENGTH.size))
        body = await self._exactly(self._size)
        self._size = None
        return self._channel.decode_body(body)

    async def _exactly(self, size: int) -> bytes:
        try:
            return await self._stream.readexactly(size)
        except EOFError as error:  # asyncio's own, which holds what came: it could be a secret
            raise _closed(len(getattr(error, "partial", b"")), size) from None
        except ConnectionError:
            raise _closed() from None


def _read_exactly(file: BinaryIO, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = file.read(size - len(data))
        if not piece:
            raise _closed(len(data), size)
        data += piece
    return bytes(data)


def _closed(came: int = 0, size: int = 0) -> ChannelClosed:
    amid = f", after {came} of {size} bytes" if came else ""
    return ChannelClosed(f"the other process is gone{amid}")


def _without_values(error: msgspec.ValidationError) -> str:
    """Return msgspec's text; it quotes a value where that is an unknown tag or not in an enum."""
    text = str(error)
    return f"Unknown value{text[text.rfind(' - at ') :]}" if text.startswith("Invalid ") else text
