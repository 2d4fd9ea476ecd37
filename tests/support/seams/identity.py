"""What tests use of `tollhouse.identity`: they import it from here alone."""

from tests.support.seams import names

__getattr__ = names(
    "tollhouse.identity",
    {
        "": "endpoints repository",
        "access": (
            "Authenticator billed_to CALLER DAEMON_PREFIX hash_key InternKeys key_holder "
            "manager mask_key new_key_text PREFIX set_caller usable"
        ),
        "endpoints.workspaces": "PolicyBody",
        "service": "IdentityService",
        "types": (
            "AccessPolicy Account AccountType ApiKey check_guardrails IssuedKey KeyFilter "
            "KeyKind LocalOperator Manager NewKey PATTERN_NAMES PayerPolicy Subject "
            "subject_of Switches Workspace"
        ),
    },
)
