"""What tests use of `tollhouse.inference`: they import it from here alone."""

from tests.support.seams import names

__getattr__ = names(
    "tollhouse.inference",
    {
        "": "endpoints generation policy_filter",
        "admission": (
            "admission_request_of allowed_candidates Demand demand_of "
            "estimate_demand estimate_raw_demand LEAST_OUTPUT MEDIA_TOKENS "
            "output_limit"
        ),
        "catalog": "build_catalog Catalog configured_price",
        "estimate": "DryRun RequestEstimate",
        "formats.adapter": (
            "AdaptedResponse AdaptedStream ClientRequest ErrorEvent FormatAdapter MalformedResponse"
        ),
        "formats.canonical": (
            "Block CanonicalRequest CanonicalResponse CanonicalToolChoice Choice JsonOutput "
            "pack ReasoningBlock ThinkingOptions ToolDefinition Turn"
        ),
        "formats.chat_replies": "CHAT_PROVIDER",
        "formats.chat": "ChatRequest parse_request",
        "formats.chat_passthrough": "ChatPassthroughAdapter",
        "formats.completions": "completions_parse_request=parse_request",
        "formats.embeddings": "embeddings_parse_request=parse_request",
        "formats.finish_reasons": "WORDS",
        "formats.kinds": "TABLES",
        "formats.messages_replies": "MESSAGES_PROVIDER",
        "formats.messages": "messages_parse_request=parse_request render_count",
        "formats.registry": "Adapters FORMATS PROVIDER_FORMATS",
        "formats.provider_errors": "error_in_place_of_reply",
        "formats.responses": "RESPONSES_PROVIDER responses_parse_request=parse_request",
        "formats.tools": "ANTHROPIC_NAMES NameRule OPENAI_NAMES ToolNames",
        "formats.whole_replies": "whole_reply_events=events_of",
        "formats.wire": (
            "decode_mended EventTemplate fields_decoder MAX_TOKENS read_object replace_invalid_text"
        ),
        "guardrails": (
            "ALLOWED decide Guardrail Guardrails GuardrailVerdict HttpGuardrail named "
            "OnFailure question read_answer"
        ),
        "list_prices": "list_price",
        "model_wire": "pricing_reply",
        "dependencies": "PipelineDependencies",
        "pipeline": "Pipeline",
        "own_routing": "OwnKeyUse usable_by",
        "policy_filter": "allowed BUILT_IN excerpt flagged objections texts",
        "ports": "OpenedReply ProviderCall",
        "price_texts": "plain price_texts",
        "formats.error_codes": "CODES_BY_STATUS status_of_error TYPE_BY_CODE",
        "providers.failures": "failure FULL_CONTEXT too_long",
        "providers.http": "HttpProvider",
        "providers.registry": "build_providers dialects_named",
        "providers.simulated.models": "Behaviour BEHAVIOURS models",
        "providers.simulated.provider": "render_chunks render_completion",
        "providers.simulated.replies": "InvalidSimulatedRequest plan_reply",
        "reply_buffer": "HIGH_WATER ReplyBuffer",
        "request": "attribute InferenceRequest parse read_preferences",
        "routing": "Candidate COOL_DOWN_SECONDS final_error find_candidates Health remaining",
        "sse": "event EventParser EventTooLarge",
        "steps": "LARGE render_request rendered_size Steps",
        "token_count": "TokenCounter",
        "types": (
            "Dialect Endpoint MaxPrice Model NO_PREFERENCES Preferences Profile "
            "ReplyIdentity RequestBuilder"
        ),
        "workers.pool": "StepTooLong WorkerGone WorkerPool",
    },
)
