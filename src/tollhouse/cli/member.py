"""A process of a server with several: `python -m tollhouse.cli.member FD NAME`.

The descriptor is that of the socket on which the supervisor says what the process is.
"""

import gc
import socket
import sys
from contextlib import suppress
from typing import BinaryIO, cast

from tollhouse.cli.main import prepare_streams
from tollhouse.cli.serving import ServeOptions, load_structlog
from tollhouse.kernel.channel import ChannelError
from tollhouse.kernel.errors import StartError


def main() -> int:
    """Serve until the supervisor ends it; return the exit code."""
    prepare_streams()
    gc.disable()
    load_structlog()
    from tollhouse.apps.processes.messages import TO_PROCESS, Begin

    link: socket.socket | None = None
    begin: object = None
    with suppress(ChannelError, OSError, ValueError, IndexError):
        link = socket.socket(fileno=int(sys.argv[1]))
        with link.makefile("rb", buffering=0) as file:
            begin = TO_PROCESS.receive_blocking(cast("BinaryIO", file))
    if link is None or not isinstance(begin, Begin):
        print("this is started by `tollhouse serve --workers`, and not by hand", file=sys.stderr)
        return StartError.exit_code
    try:
        options = ServeOptions.of_texts(begin.options)
        settings = options.settings()
        from tollhouse.apps.processes.member import Member
        from tollhouse.apps.serve import serve_member

        return serve_member(settings, Member(begin), link)
    except StartError as error:
        print(error, file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
