"""Images, documents and audio in a request."""

from __future__ import annotations

from tests.unit.inference.formats.features.feature import MARK, RequestFeature
from tests.unit.inference.formats.features.request_parts import PDF, PNG, TXT, URL, user


def _files() -> dict[str, RequestFeature]:
    base64 = {"type": "base64", "media_type": "image/png", "data": "bWFyaw=="}
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "bWFyaw=="}
    return {
        "image, inline": RequestFeature(
            says=user(
                {"type": "image_url", "image_url": {"url": PNG}},
                {"type": "input_image", "image_url": PNG},
                {"type": "image", "source": base64},
            ),
            own={
                "chat": {"messages.0.content.0.image_url.url": PNG},
                "responses": {"input.0.content.0": {"type": "input_image", "image_url": PNG}},
                "messages": {"messages.0.content.0": {"type": "image", "source": base64}},
            },
            covers=("ImageBlock.url",),
        ),
        "image, by URL": RequestFeature(
            says=user(
                {"type": "image_url", "image_url": {"url": URL}},
                {"type": "input_image", "image_url": URL},
                {"type": "image", "source": {"type": "url", "url": URL}},
            ),
            own={
                "chat": {"messages.0.content.0.image_url.url": URL},
                "responses": {"input.0.content.0": {"type": "input_image", "image_url": URL}},
                "messages": {"messages.0.content.0.source": {"type": "url", "url": URL}},
            },
        ),
        "image `detail`": RequestFeature(
            says=user(
                {"type": "image_url", "image_url": {"url": URL, "detail": "low"}},
                {"type": "input_image", "image_url": URL, "detail": "low"},
            ),
            beside=user(
                {"type": "image_url", "image_url": {"url": URL}},
                {"type": "input_image", "image_url": URL},
            ),
            own={
                "chat": {"messages.0.content.0.image_url.detail": "low"},
                "responses": {"input.0.content.0.detail": "low"},
            },
            covers=("ImageBlock.detail",),
        ),
        "document, inline": RequestFeature(
            says=user(
                {"type": "file", "file": {"file_data": PDF}},
                {"type": "input_file", "file_data": PDF},
                {"type": "document", "source": pdf},
            ),
            own={
                "chat": {"messages.0.content.0.file.file_data": PDF},
                "responses": {"input.0.content.0.file_data": PDF},
                "messages": {"messages.0.content.0": {"type": "document", "source": pdf}},
            },
            covers=("DocumentBlock.url",),
        ),
        "document, by URL": RequestFeature(
            says=user(
                {"type": "file", "file": {"file_data": URL}},
                {"type": "input_file", "file_url": URL},
                {"type": "document", "source": {"type": "url", "url": URL}},
            ),
            own={
                "responses": {"input.0.content.0.file_url": URL},
                "messages": {"messages.0.content.0.source": {"type": "url", "url": URL}},
            },
        ),
        "document's name": RequestFeature(
            says=user(
                {"type": "file", "file": {"file_data": PDF, "filename": MARK}},
                {"type": "input_file", "file_data": PDF, "filename": MARK},
                {"type": "document", "source": pdf, "title": MARK},
            ),
            own={
                "chat": {"messages.0.content.0.file.filename": MARK},
                "responses": {"input.0.content.0.filename": MARK},
                "messages": {"messages.0.content.0.title": MARK},
            },
            covers=("DocumentBlock.name",),
        ),
        "text file, inline": RequestFeature(
            says=user(
                {"type": "file", "file": {"file_data": TXT}},
                {"type": "input_file", "file_data": TXT},
                {
                    "type": "document",
                    "source": {"type": "base64", "media_type": "text/plain", "data": "bWFyaw=="},
                },
            ),
            own={
                "chat": {"messages.0.content.0.file.file_data": TXT},
                "responses": {"input.0.content.0.file_data": TXT},
            },
            other={
                "messages": {
                    "messages.0.content.0.source": {
                        "type": "text",
                        "media_type": "text/plain",
                        "data": "mark",
                    }
                }
            },
        ),
        "document, as plain text": RequestFeature(
            says=user(
                None,
                None,
                {
                    "type": "document",
                    "source": {"type": "text", "media_type": "text/plain", "data": MARK},
                },
            ),
            other={
                "chat": {"messages.0.content": MARK},
                "responses": {"input.0.content.0": {"type": "input_text", "text": MARK}},
            },
            covers=("DocumentBlock.text",),
        ),
        "document, as text blocks": RequestFeature(
            says=user(
                None,
                None,
                {
                    "type": "document",
                    "source": {"type": "content", "content": [{"type": "text", "text": MARK}]},
                },
            ),
            other={
                "chat": {"messages.0.content": MARK},
                "responses": {"input.0.content.0": {"type": "input_text", "text": MARK}},
            },
        ),
        "search result block": RequestFeature(
            says=user(
                None,
                None,
                {
                    "type": "search_result",
                    "source": URL,
                    "title": "found",
                    "content": [{"type": "text", "text": MARK}],
                },
            ),
            other={
                "chat": {"messages.0.content": MARK},
                "responses": {"input.0.content.0": {"type": "input_text", "text": MARK}},
            },
        ),
        "audio input": RequestFeature(
            says=user(
                *[{"type": "input_audio", "input_audio": {"data": "bWFyaw==", "format": "wav"}}] * 2
            ),
            own={
                "chat": {"messages.0.content.0.input_audio": {"data": "bWFyaw==", "format": "wav"}},
            },
            covers=("AudioBlock.data", "AudioBlock.format"),
        ),
        "image by file id": RequestFeature(
            says=user(
                None,
                {"type": "input_image", "file_id": MARK},
                {"type": "image", "source": {"type": "file", "file_id": MARK}},
            )
        ),
        "document by file id": RequestFeature(
            says=user(
                {"type": "file", "file": {"file_id": MARK}},
                {"type": "input_file", "file_id": MARK},
                {"type": "document", "source": {"type": "file", "file_id": MARK}},
            )
        ),
    }


FILES: dict[str, RequestFeature] = {**_files()}
