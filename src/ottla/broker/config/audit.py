"""Settings that a broker is given and cannot obey: what would protect is refused, the rest is told at the start."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ottla.config import ConfigError, Definition

# The first words of the settings of what Ottla does not have.
LEFT_OUT = (
    "controller.listener.",
    "controller.quorum.",
    "delegation.token.",
    "follower.fetch.last.tiered.",
    "group.share.",
    "group.streams.",
    "metadata.",
    "metric.reporters",
    "process.roles",
    "remote.",
    "sasl.",
    "security.providers",
    "share.",
    "ssl.",
)

# What somebody relies on who sets it: without it, others could do what they must not.
_PROTECTION = {
    "alter.config.policy.class.name": "policies for configurations",
    "allow.everyone.if.no.acl.found": "access control",
    "authorizer.class.name": "access control: everybody may do everything",
    "client.quota.callback.class": "quotas from elsewhere",
    "create.topic.policy.class.name": "policies for topics",
    "principal.builder.class": "principals: everybody is ANONYMOUS",
    "super.users": "access control: everybody may do everything",
}
_PROTECTION_FAMILIES = (
    (re.compile(r"(listener\.name\.[^.]+\.)?ssl\..*"), "TLS"),
    (re.compile(r"(listener\.name\.[^.]+\.)?([^.]+\.)?sasl\..*"), "logins"),
    (re.compile(r"delegation\.token\..*"), "delegation tokens"),
)
_INTER_BROKER_PROTOCOL = "security.inter.broker.protocol"


def refuse_protection(texts: Mapping[str, str]) -> None:
    """ConfigError where somebody counts on protection that is not there."""
    for name, text in texts.items():
        missing = _protection(name)
        if missing is not None and text.strip():
            raise ConfigError(f"{name}: Ottla has no {missing}; take the setting out if you can do without")
    if texts.get(_INTER_BROKER_PROTOCOL, "PLAINTEXT").upper() != "PLAINTEXT":
        raise ConfigError(f"{_INTER_BROKER_PROTOCOL}: Ottla speaks PLAINTEXT")


def _protection(name: str) -> str | None:
    if name in _PROTECTION:
        return _PROTECTION[name]
    return next((missing for family, missing in _PROTECTION_FAMILIES if family.fullmatch(name)), None)


def idle_settings(texts: Mapping[str, str], known: Mapping[str, Definition]) -> Iterator[tuple[str, str]]:
    """The settings that change nothing, each with the reason."""
    for name in sorted(texts):
        definition = known.get(name)
        if definition is not None:
            if definition.is_kept_only:
                yield name, "Ottla keeps and describes it, and does nothing with it"
        elif name.startswith(LEFT_OUT):
            yield name, "Ottla does not have what it is for"
        else:
            yield name, _unknown(name, known)


def _unknown(name: str, known: Mapping[str, Definition]) -> str:
    from difflib import get_close_matches  # few need it

    nearest = get_close_matches(name, known, n=1)
    return f"there is no such setting; the nearest is {nearest[0]}" if nearest else "there is no such setting"
