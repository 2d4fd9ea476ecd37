"""`/files`: the workspace over HTTP."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Final

from starlette.responses import JSONResponse, Response

from tollhouse.sandbox.daemon.errors import Refused
from tollhouse.sandbox.daemon.files.entries import MOST_LISTED, listing
from tollhouse.sandbox.daemon.files.names import read_flag, read_mode, read_number, read_path
from tollhouse.sandbox.daemon.files.reading import FileResponse, Opened, opened
from tollhouse.sandbox.daemon.files.removing import remove
from tollhouse.sandbox.daemon.files.tree import Tree
from tollhouse.sandbox.daemon.files.work import beside
from tollhouse.sandbox.daemon.files.writing import Uploads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

PREFIX: Final = b"/files"
METHODS: Final = ("GET", "HEAD", "PUT", "DELETE")
_LISTED: Final = 1000


class Files:
    """Serves the files of a workspace."""

    def __init__(self, workspace: str, largest: int) -> None:
        """Open the workspace.

        Args:
            workspace: Its folder.
            largest: How many bytes a file may have that is sent.

        Raises:
            OSError: There is no such folder.
        """
        self._tree = Tree(workspace)
        self._uploads = Uploads(self._tree, largest)
        self._uploads.sweep()

    async def serve(self, request: Request) -> Response:
        """Answer a request.

        Raises:
            Refused: It cannot be done.
            OSError: The same, in the system's words.
        """
        raw: bytes = request.scope["raw_path"]
        names = read_path(raw.removeprefix(PREFIX))
        match request.method:
            case "PUT":
                return await self._put(names, request)
            case "DELETE":
                return await self._delete(names, request)
            case _:
                return await self._get(names, request)

    async def _get(self, names: Sequence[str], request: Request) -> Response:
        with self._tree.place(names) as place:
            found = opened(place)
        try:
            if not found.is_folder:
                return FileResponse(found, request)
        except BaseException:
            os.close(found.file)
            raise
        return await _listing(found, request)

    async def _put(self, names: Sequence[str], request: Request) -> Response:
        size = request.headers.get("Content-Length")
        if "Content-Range" in request.headers:
            raise Refused(400, "A file is sent whole, not in parts.")
        mode = read_mode(request.query_params.get("mode"))
        stored, is_new = await self._uploads.put(
            names, request.stream(), size=None if size is None else int(size), mode=mode
        )
        return JSONResponse(stored, 201 if is_new else 200)

    async def _delete(self, names: Sequence[str], request: Request) -> Response:
        text = request.query_params.get("recursive")
        recursive = read_flag(text, "recursive", default=False)
        with self._tree.place(names, follow=False) as place:
            await beside(partial(remove, place, recursive=recursive))
        return Response(status_code=204)


async def _listing(found: Opened, request: Request) -> Response:
    try:
        query = request.query_params
        limit = read_number(query.get("limit"), "limit", default=_LISTED, largest=MOST_LISTED)
        after = query.get("after", "")
        return JSONResponse(await beside(partial(listing, found.file, after, limit)))
    finally:
        os.close(found.file)
