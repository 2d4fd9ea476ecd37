"""Chats and text completions as the `openai` library has them."""

import json

import conversations
from conversations import said
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

FUNCTIONS = [{"name": name, "parameters": schema} for name, schema in conversations.TOOLS.items()]
FEATURES = conversations.CHAT_FEATURES | {
    "error invalid": {"messages": [{"role": "nobody", "content": "?"}]}
}


def data_of(raw) -> list[str]:
    """Return the data of a raw stream's events; asserts that `[DONE]` is its last."""
    lines = raw.http_response.read().decode().split("\n")
    *data, done = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    assert done == "[DONE]", done
    return data


def usage_of(usage) -> tuple:
    return usage.prompt_tokens, usage.completion_tokens, usage.model_extra["cost"]


class Chat:
    """`client.chat.completions`."""

    def __init__(self, client) -> None:
        self.completions = client.chat.completions

    def fields(self, model, feature) -> dict:
        usual = {"model": model, "messages": [conversations.USER]}
        if feature in conversations.CALLING:
            usual["tools"] = [{"type": "function", "function": each} for each in FUNCTIONS]
        if feature in conversations.THINKING:
            usual |= {"reasoning_effort": "low", "max_tokens": 5000}
        return usual | FEATURES.get(feature, {})

    def more(self, fields, reply) -> dict:
        message = reply.choices[0].message.model_dump(exclude_none=True)
        for extra in ("annotations", "parsed"):
            message.pop(extra, None)
        for call in message.get("tool_calls", ()):
            call["function"].pop("parsed_arguments", None)
        results = [
            {"role": "tool", "tool_call_id": call["id"], "content": result}
            for call, result in zip(
                message.get("tool_calls", ()), conversations.RESULTS, strict=False
            )
        ]
        next_turn = results or [{"role": "user", "content": conversations.NEXT}]
        later = {key: value for key, value in fields.items() if key != "tool_choice"}
        return later | {"messages": [*fields["messages"], message, *next_turn]}

    def whole(self, fields) -> ChatCompletion:
        text = self.completions.with_raw_response.create(**fields).text
        return ChatCompletion.model_validate_json(text, strict=True)

    def streamed(self, fields) -> ChatCompletion:
        for chunk in data_of(self.completions.with_raw_response.create(**fields, stream=True)):
            ChatCompletionChunk.model_validate_json(chunk, strict=True)
        with self.completions.stream(**fields) as stream:
            # Its final completion is one to parse: there it raises for a length or a filter.
            stream.until_done()
            return stream.current_completion_snapshot

    def said(self, reply) -> dict:
        message = reply.choices[0].message
        return said(
            message.content or "",
            reason=reply.choices[0].finish_reason,
            refusal=message.refusal,
            thought=(message.model_extra or {}).get("reasoning") or "",
            calls=[
                (call.function.name, call.function.arguments) for call in message.tool_calls or ()
            ],
            usage=usage_of(reply.usage),
        )


def unfinished(chunk) -> dict:
    """Return a chunk as the library's type has it: OpenAI sends null where it wants a reason."""
    for choice in chunk["choices"]:
        choice["finish_reason"] = choice["finish_reason"] or "stop"
    return chunk


class TextCompletions:
    """`client.completions`, which has no helper for streams."""

    def __init__(self, client) -> None:
        self.completions = client.completions

    def fields(self, model, feature) -> dict:
        chosen = FEATURES.get(feature, {})
        usual = {key: chosen[key] for key in ("stop", "max_tokens") if key in chosen}
        wrong = {"prompt": {"no": "text"}} if feature == "error invalid" else {}
        prompt = conversations.LONG if feature == "length" else conversations.TEXT
        return {"model": model, "prompt": prompt} | usual | wrong

    def whole(self, fields) -> Completion:
        text = self.completions.with_raw_response.create(**fields).text
        return Completion.model_validate_json(text, strict=True)

    def streamed(self, fields) -> Completion:
        data = data_of(self.completions.with_raw_response.create(**fields, stream=True))
        chunks = [Completion.model_validate(unfinished(json.loads(each))) for each in data]
        choices = [choice for chunk in chunks for choice in chunk.choices]
        end = next((each for each in choices if each.finish_reason != "stop"), choices[-1])
        end.text = "".join(choice.text for choice in choices)
        return chunks[-1].model_copy(update={"choices": [end]})

    def said(self, reply) -> dict:
        (choice,) = reply.choices
        return said(choice.text, reason=choice.finish_reason, usage=usage_of(reply.usage))
