"""What tests use of `tollhouse.api`: they import it from here alone."""

from tests.support.seams import names

__getattr__ = names(
    "tollhouse.api",
    {
        "": "connection request_gate request_rules",
        "address_table": "AddressTable clear_row make_table",
        "asgi": "JSON Message ON_GONE respond Scope Send",
        "asgi_call": "MOST_UNTAKEN",
        "connection": (
            "BODY_SECONDS HEAD_SECONDS HttpConnection KEEP_ALIVE_SECONDS LINGER_SECONDS "
            "UNSENT_SECONDS"
        ),
        "control": "control_app not_offered",
        "docs": "docs_files",
        "errors": "error_response invalid_request with_reason",
        "exchange": "Exchange LARGEST_HANDLED_BODY",
        "handover": "FirstLines",
        "hot_routes": "attribution Inference LargeBodies",
        "inference_handler": "InferenceHandler",
        "openapi": "HOT_ROUTES render_openapi SAMPLES",
        "passing_connection": "PassingConnection",
        "request_bodies": "BodyMemory GRACE_SECONDS Hold LEAST_RATE read_body",
        "request_gate": "AddressRate RequestGate Routes takes_websocket",
        "request_rules": (
            "api_path client_address credential deadline from_loopback is_host "
            "is_intern_chat is_open is_regional is_trusted origin_allowed"
        ),
        "server": "make_server",
        "server_context": "ServerContext",
        "system": "ControlPlane LateControlPlane Readiness Recovery SystemRoutes",
    },
)
