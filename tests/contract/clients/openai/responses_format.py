"""Responses as the `openai` library has them."""

import conversations
from chat_format import data_of
from conversations import said
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

EVENT = TypeAdapter(ResponseStreamEvent)
FEATURES = conversations.RESPONSES_FEATURES | {"error invalid": {"input": 7}}


class Responses:
    """`client.responses`."""

    def __init__(self, client) -> None:
        self._responses = client.responses

    def fields(self, model, feature) -> dict:
        usual = {"model": model, "input": conversations.TEXT, "store": False}
        if feature in conversations.CALLING:
            usual["tools"] = [
                {"type": "function", "name": name, "parameters": schema, "strict": False}
                for name, schema in conversations.TOOLS.items()
            ]
        if feature in conversations.THINKING:
            usual |= {
                "reasoning": {"effort": "low", "summary": "auto"},
                "include": ["reasoning.encrypted_content"],
                "max_output_tokens": 5000,
            }
        return usual | FEATURES.get(feature, {})

    def more(self, fields, reply) -> dict:
        output = [item.model_dump(exclude_none=True) for item in reply.output]
        for item in output:
            item.pop("parsed_arguments", None)
        calls = [item for item in output if item["type"] == "function_call"]
        results = [
            {"type": "function_call_output", "call_id": call["call_id"], "output": result}
            for call, result in zip(calls, conversations.RESULTS, strict=False)
        ]
        next_turn = results or [{"role": "user", "content": conversations.NEXT}]
        later = {key: value for key, value in fields.items() if key != "tool_choice"}
        said = [{"role": "user", "content": fields["input"]}, *output, *next_turn]
        return later | {"input": said}

    def whole(self, fields) -> Response:
        text = self._responses.with_raw_response.create(**fields).text
        return Response.model_validate_json(text, strict=True)

    def streamed(self, fields) -> Response:
        for event in data_of(self._responses.with_raw_response.create(**fields, stream=True)):
            EVENT.validate_json(event, strict=True)
        with self._responses.stream(**fields) as stream:
            *_, last = stream
        return last.response

    def said(self, reply) -> dict:
        items, usage = reply.output, reply.usage
        messages = [item for item in items if item.type == "message"]
        parts = [part for item in messages for part in item.content]
        refusals = [part.refusal for part in parts if part.type == "refusal"]
        thoughts = [item for item in items if item.type == "reasoning"]
        shown = [part for item in thoughts for part in [*item.summary, *(item.content or ())]]
        details = reply.incomplete_details
        return said(
            "".join(part.text for part in parts if part.type == "output_text"),
            reason=details.reason if details else reply.status,
            refusal="".join(refusals) or None,
            thought="".join(part.text for part in shown),
            calls=[(item.name, item.arguments) for item in items if item.type == "function_call"],
            usage=(usage.input_tokens, usage.output_tokens, usage.model_extra["cost"]),
        )
