import base64
import json
from collections.abc import Callable, Mapping, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.seams.inference import (
    LEAST_OUTPUT,
    MAX_TOKENS,
    MEDIA_TOKENS,
    ClientRequest,
    Demand,
    estimate_demand,
    estimate_raw_demand,
)
from tests.support.seams.inference import completions_parse_request as parse_completions
from tests.support.seams.inference import embeddings_parse_request as parse_embeddings
from tests.support.seams.inference import messages_parse_request as parse_messages
from tests.support.seams.inference import parse_request as parse_chat
from tests.support.seams.inference import responses_parse_request as parse_responses
from tollhouse.kernel.errors import Invalid

PARSERS: Mapping[str, tuple[Callable[[bytes], ClientRequest], str, object]] = {
    "chat": (parse_chat, "messages", [{"role": "user", "content": "Hello"}]),
    "completions": (parse_completions, "prompt", "Hello"),
    "messages": (parse_messages, "messages", [{"role": "user", "content": "Hello"}]),
    "responses": (parse_responses, "input", "Hello"),
    "embeddings": (parse_embeddings, "input", "Hello"),
}
WRITERS = ("chat", "completions", "messages", "responses")
LIMITS = {
    "chat": "max_completion_tokens",
    "completions": "max_tokens",
    "messages": "max_tokens",
    "responses": "max_output_tokens",
}
PAYLOAD = base64.b64encode(Random(1).randbytes(1_000_000)).decode()
DATA_URL = f"data:image/png;base64,{PAYLOAD}"
SOURCE = {"type": "base64", "media_type": "image/png", "data": PAYLOAD}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=9,
)


Asked = tuple[ClientRequest, bytes]


def parsed(name: str, **fields: object) -> Asked:
    """Return a request and its body."""
    parse, said, usual = PARSERS[name]
    body = json.dumps({"model": "a/b", said: usual} | fields, ensure_ascii=False).encode()
    return parse(body), body


def output(name: str, **fields: object) -> int | None:
    return estimate_demand(*parsed(name, **fields)).output_tokens


def chat_of(*parts: object) -> Asked:
    return parsed("chat", messages=[{"role": "user", "content": list(parts)}])


class TestOutput:
    @pytest.mark.parametrize("name", WRITERS)
    def test_is_what_the_limit_of_the_format_allows(self, name: str) -> None:
        assert output(name, **{LIMITS[name]: 500}) == 500

    @pytest.mark.parametrize("name", WRITERS)
    def test_is_open_without_a_limit(self, name: str) -> None:
        assert output(name) is None

    @pytest.mark.parametrize("name", ["chat", "completions", "responses"])
    @pytest.mark.parametrize("value", [None, "500", True, [], {}, 0, -1])
    def test_is_open_with_a_limit_that_says_nothing(self, name: str, value: object) -> None:
        assert output(name, **{LIMITS[name]: value}) is None

    def test_is_open_with_a_number_that_nobody_can_hold(self) -> None:
        body = b'{"model":"a/b","messages":[{"role":"user","content":""}],"max_tokens":1e999}'
        assert estimate_demand(parse_chat(body), body).output_tokens is None

    @pytest.mark.parametrize(("name", "other"), [("chat", "max_output_tokens"), ("responses", "n")])
    def test_is_not_limited_by_the_field_of_another_format(self, name: str, other: str) -> None:
        assert output(name, **{other: 5}) is None

    def test_is_nothing_for_embeddings(self) -> None:
        assert output("embeddings", max_tokens=500) == 0

    def test_of_two_limits_is_the_larger(self) -> None:
        assert output("chat", max_tokens=500, max_completion_tokens=400) == 500
        assert output("chat", max_tokens=500, max_completion_tokens=None) == 500

    def test_of_a_limit_and_nonsense_is_open(self) -> None:
        assert output("chat", max_tokens=500, max_completion_tokens="x") is None

    def test_counts_each_answer(self) -> None:
        assert output("chat", max_tokens=500, n=3) == 1_500
        assert output("completions", max_tokens=500, n=2, best_of=4) == 2_000
        assert output("completions", max_tokens=500, n=None) == 500

    def test_is_open_where_nobody_can_tell_the_number_of_answers(self) -> None:
        assert output("chat", max_tokens=500, n="three") is None

    def test_does_not_count_answers_where_the_format_has_but_one(self) -> None:
        assert output("messages", max_tokens=500, n=3) == 500
        assert output("responses", max_output_tokens=500, n=3) == 500

    @pytest.mark.parametrize(
        ("prompt", "count"),
        [("a", 1), (["a"], 1), (["a", "b", "c"], 3), ([1, 2, 3], 1), ([[1, 2], [3]], 2)],
    )
    def test_counts_each_prompt(self, prompt: object, count: int) -> None:
        assert output("completions", max_tokens=500, prompt=prompt) == count * 500

    def test_has_a_largest_number(self) -> None:
        assert output("chat", max_tokens=10**30, n=10**30) == MAX_TOKENS

    def test_rounds_up(self) -> None:
        assert output("chat", max_tokens=500.2) == 501

    @pytest.mark.parametrize(
        ("fields", "tokens"),
        [
            ({"reasoning": {"max_tokens": 6_000}}, 11_000),
            ({"reasoning": {"max_tokens": 4_000}}, 5_000),
            ({"reasoning": {"effort": "high"}}, 5_000),
            ({"reasoning_effort": "high"}, 5_000),
            ({"reasoning": None}, 5_000),
            ({"reasoning": "much"}, 5_000),
        ],
    )
    def test_has_room_for_thoughts_that_leave_nothing(
        self, fields: dict[str, object], tokens: int
    ) -> None:
        assert output("chat", max_tokens=5_000, **fields) == tokens

    def test_has_room_for_the_smallest_budget_of_thoughts(self) -> None:
        assert output("chat", max_tokens=500, reasoning_effort="low") == 500 + 1_024


class TestInput:
    # What cl100k, o200k, DeepSeek's and Claude 2's tokenizer count at most.
    @pytest.mark.parametrize(
        ("text", "count"),
        [
            ("The quick brown fox jumps over the lazy dog. " * 40, 401),
            ("    if x[i] == 3:\n        return {'a': None}\n" * 40, 641),
            ('{"id":12,"name":"x","tags":["a","b"],"ok":true},' * 40, 801),
            ("今天天气很好,我们去公园散步。" * 40, 720),
            ("나는 오늘 친구와 함께 학교에 갔다. " * 40, 1_001),
            ("0.1234 -0.5678 " * 40, 400),
        ],
        ids=["english", "code", "json", "chinese", "korean", "numbers"],
    )
    def test_is_not_below_the_count_of_a_tokenizer(self, text: str, count: int) -> None:
        request = parsed("chat", messages=[{"role": "user", "content": text}])
        empty = parsed("chat", messages=[{"role": "user", "content": ""}])
        tokens = estimate_demand(*request).input_tokens - estimate_demand(*empty).input_tokens
        assert count <= tokens <= 3 * count

    @given(name=st.sampled_from(sorted(PARSERS)), text=st.text(), more=st.text())
    def test_does_not_fall_with_what_is_added(self, name: str, text: str, more: str) -> None:
        _, said, _ = PARSERS[name]

        def tokens(content: str) -> int:
            whole = [{"role": "user", "content": content}] if said == "messages" else f"x{content}"
            return estimate_demand(*parsed(name, **{said: whole})).input_tokens

        assert 0 < tokens(text) <= tokens(text + more)

    @pytest.mark.parametrize("size", [1, 8_189, 8_190, 8_191, 100_000])
    def test_weighs_each_byte_by_its_kind_however_many_there_are(self, size: int) -> None:
        eighths = {"a": 2, "A": 8, " ": 1, "1": 6, "ф": 10}
        empty = estimate_demand(
            *parsed("chat", messages=[{"role": "user", "content": ""}])
        ).input_tokens
        for letter, each in eighths.items():
            content = [{"role": "user", "content": letter * size}]
            tokens = estimate_demand(*parsed("chat", messages=content)).input_tokens - empty
            assert tokens == pytest.approx(size * each / 8, abs=1)

    def test_is_at_least_the_tokens_that_are_given_as_such(self) -> None:
        assert estimate_demand(*parsed("embeddings", input=[7] * 1_000)).input_tokens >= 1_000


MEDIA: Mapping[str, Sequence[object]] = {
    "chat": [
        {"type": "image_url", "image_url": {"url": DATA_URL}},
        {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}},
    ],
    "messages": [
        {"type": "image", "source": SOURCE},
        {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "image"}]},
    ],
    "responses": [
        {"type": "input_image", "image_url": DATA_URL},
        {"type": "input_image", "file_id": "file-1"},
    ],
}


def with_media(name: str) -> ClientRequest:
    said = "input" if name == "responses" else "messages"
    return parsed(name, **{said: [{"role": "user", "content": MEDIA[name]}]})


class TestMedia:
    @pytest.mark.parametrize("name", MEDIA)
    def test_images_count_flat_however_long_their_base64_is(self, name: str) -> None:
        asked = estimate_demand(*with_media(name))
        assert asked.images == 2
        assert 2 * MEDIA_TOKENS < asked.input_tokens < 2 * MEDIA_TOKENS + 200

    @pytest.mark.parametrize(
        "part",
        [
            {"type": "input_audio", "input_audio": {"data": PAYLOAD, "format": "wav"}},
            {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{PAYLOAD}"}},
            {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{PAYLOAD}"}},
            {"type": "something_new", "data": PAYLOAD, "encoding": "base64"},
        ],
        ids=["audio", "file", "video", "unknown"],
    )
    def test_other_media_count_flat_and_are_no_images(self, part: object) -> None:
        asked = estimate_demand(*chat_of(part))
        assert asked.images == 0
        assert MEDIA_TOKENS < asked.input_tokens < MEDIA_TOKENS + 200

    def test_an_image_in_the_output_of_a_tool_counts(self) -> None:
        output_ = [{"type": "input_image", "image_url": DATA_URL}]
        call = {"type": "function_call_output", "call_id": "1", "output": output_}
        assert estimate_demand(*parsed("responses", input=[call])).images == 1

    def test_an_image_in_a_document_counts(self) -> None:
        nested = {"type": "content", "content": [{"type": "image", "source": SOURCE}]}
        document = {"type": "document", "source": nested}
        request = parsed("messages", messages=[{"role": "user", "content": [document]}])
        assert estimate_demand(*request).images == 1

    @pytest.mark.parametrize("kind", ["image", "image_url", "input_image", "computer_screenshot"])
    def test_an_image_is_held_for_as_it_is_charged(self, kind: str) -> None:
        part = {"type": kind, "file_id": "file-1"}
        request = parsed("responses", input=[{"type": "computer_call_output", "output": part}])
        assert estimate_demand(*request).images == 1

    @pytest.mark.parametrize(
        ("plain", "escaped"),
        [("type", "t\\u0079pe"), ("image", "\\u0069mage")],
        ids=["name", "value"],
    )
    def test_an_image_whose_type_is_written_with_escapes_is_held_for(
        self, plain: str, escaped: str
    ) -> None:
        part = '{"type":"image","source":{"url":"https://example.org/cat.png"}}'
        said = '{"model":"a/b","messages":[{"role":"user","content":[PART]}]}'
        body = said.replace("PART", part.replace(plain, escaped)).encode()
        assert estimate_demand(parse_messages(body), body).images == 1

    def test_what_is_said_of_images_is_none(self) -> None:
        said = '{"type": "image_url", "image_url": {"url": "' + DATA_URL + '"}} base64'
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "image"}}}
        body = parsed("chat", messages=[{"role": "user", "content": said}], tools=[tool])
        asked = estimate_demand(*body)
        assert asked.images == 0
        assert asked.input_tokens > len(PAYLOAD) / 2

    def test_a_plain_text_in_the_place_of_a_payload_is_text(self) -> None:
        said = "x" * 70 + " and so on" * 9_000
        document = {"type": "document", "source": {"type": "text", "data": said}}
        marker = {"type": "text", "text": "base64"}
        request = parsed("messages", messages=[{"role": "user", "content": [document, marker]}])
        assert estimate_demand(*request).input_tokens > len(said) / 8

    def test_nests_no_deeper_than_formats_do(self) -> None:
        part: object = {"type": "image"}
        for _ in range(50):
            part = {"type": "tool_result", "content": [part]}
        assert estimate_demand(*chat_of(part)).images == 0


KINDS = ["text", "image", "image_url", "input_image", "input_text", "file", "imagery"]
parts = st.recursive(
    st.fixed_dictionaries({"type": st.sampled_from(KINDS)}),
    lambda inner: st.fixed_dictionaries(
        {"type": st.sampled_from(KINDS), "content": st.lists(inner, max_size=3)}
    ),
    max_leaves=5,
)


@given(st.lists(parts, max_size=3))
def test_a_search_for_media_finds_what_reading_every_part_finds(content: list[object]) -> None:
    """The types of parts are searched for, unless escapes may hide them from a search."""
    body = json.dumps({"model": "a/b", "messages": [{"role": "user", "content": content}]})
    searched = body.encode()
    read = body.replace('"type"', '"typ\\u0065"').encode()
    found, all_ = (estimate_demand(parse_chat(each), each).images for each in (searched, read))
    assert found == all_


FIELDS = (
    *("messages", "input", "prompt", "system", "n", "best_of", "reasoning", "reasoning_effort"),
    *("max_tokens", "max_completion_tokens", "max_output_tokens"),
)
nested = st.just([{"type": "image_url", "content": [{"type": ["image"]}]}])


@given(
    st.sampled_from(sorted(PARSERS)), st.dictionaries(st.sampled_from(FIELDS), json_values | nested)
)
def test_whatever_is_parsed_has_a_demand(name: str, fields: dict[str, object]) -> None:
    try:
        request = parsed(name, **fields)
    except Invalid:
        return
    asked = estimate_demand(*request)
    assert asked.input_tokens > 0
    assert asked.output_tokens is None or 0 <= asked.output_tokens <= MAX_TOKENS
    assert asked.images >= 0


class TestRough:
    @pytest.mark.parametrize("name", ["chat", "messages", "responses"])
    @pytest.mark.parametrize(
        "fields",
        [
            {},
            {"limit": 500},
            {"limit": 5_000, "reasoning": {"max_tokens": 6_000}},
            {"limit": 500, "tools": [{"type": "function", "function": {"name": "max_tokens"}}]},
        ],
        ids=str,
    )
    def test_is_what_the_parsed_request_asks_for(
        self, name: str, fields: dict[str, object]
    ) -> None:
        named = {LIMITS[name] if field == "limit" else field: fields[field] for field in fields}
        request = parsed(name, **named)
        assert estimate_raw_demand(request[1]) == estimate_demand(*request)

    @pytest.mark.parametrize(
        "fields",
        [
            {"max_tokens": 500, "n": 3},
            {"max_tokens": 500, "max_completion_tokens": 400},
            {"max_tokens": "x"},
            {"max_tokens": 500, "reasoning_effort": "high"},
        ],
        ids=str,
    )
    def test_is_what_a_chat_asks_for(self, fields: dict[str, object]) -> None:
        request = parsed("chat", **fields)
        assert estimate_raw_demand(request[1]) == estimate_demand(*request)

    @pytest.mark.parametrize("name", MEDIA)
    def test_has_the_media_of_the_parsed_request(self, name: str) -> None:
        request = with_media(name)
        assert estimate_raw_demand(request[1]) == estimate_demand(*request)

    def test_of_embeddings_sets_no_limit(self) -> None:
        request = parsed("embeddings", input="Hello")
        asked = estimate_raw_demand(request[1])
        assert asked.output_tokens is None
        assert asked.input_tokens == estimate_demand(*request).input_tokens

    def test_does_not_look_for_limits_below_the_top(self) -> None:
        asked = estimate_raw_demand(b'{"metadata": {"max_tokens": 5}, "max_output_tokens": 1}')
        assert asked.output_tokens == LEAST_OUTPUT

    @pytest.mark.parametrize(
        "body", [b"[1]", b"nil", b'{"max_tokens": 5', b'{"a":' + b"[" * 5_000, b'{"\xff": 1}']
    )
    def test_of_what_is_no_object_is_its_text(self, body: bytes) -> None:
        asked = estimate_raw_demand(body)
        assert asked == Demand(asked.input_tokens, None, 0)
        assert asked.input_tokens > 0

    def test_of_a_body_that_ends_amid_a_picture_is_its_text(self) -> None:
        cut = b'{"type": "image_url", "image_url": {"url": "data:image/png;base64,' + b"A" * 100
        asked = estimate_raw_demand(cut)
        assert asked == Demand(asked.input_tokens, None, 0)
        assert asked.input_tokens >= 100
