"""Interns over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from tollhouse.interns.endpoints.chat import Chats
from tollhouse.interns.endpoints.lifecycle import Interns

if TYPE_CHECKING:
    from tollhouse.interns.chat.service import ChatService
    from tollhouse.interns.service import InternService
    from tollhouse.storage.database import Database


def router(service: InternService, chats: ChatService, database: Database) -> APIRouter:
    """Return the routes of interns."""
    routes = APIRouter()
    Interns(service, database).add_to(routes)
    Chats(chats).add_to(routes)
    return routes
