"""Secrets taken out of text before it is stored: keys, tokens and passwords, as detect-secrets knows them.

In: a text, or a noun with texts in it. Out: the same with `[redacted: kind]` where a secret stood; the same object where there is none.
Always the same for the same text, and once is enough. Only detectors of known forms are asked: those that look for entropy take hashes,
identifiers and test data for secrets by the thousand.

Not promised: that every secret is found. One of no known form, such as a password in a sentence, looks like any other word.
"""

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache, partial
from importlib import import_module
from typing import Any, TypeVar, cast

from mulligan.errors import InvalidData

T = TypeVar("T")

DETECTORS: Mapping[str, tuple[str, str]] = {  # what it is called → module and class of detect-secrets
    "aws key": ("aws", "AWSKeyDetector"),
    "azure storage key": ("azure_storage_key", "AzureStorageKeyDetector"),
    "password in an address": ("basic_auth", "BasicAuthDetector"),
    "discord token": ("discord", "DiscordBotTokenDetector"),
    "github token": ("github_token", "GitHubTokenDetector"),
    "gitlab token": ("gitlab_token", "GitLabTokenDetector"),
    "jwt": ("jwt", "JwtTokenDetector"),
    "mailchimp key": ("mailchimp", "MailchimpDetector"),
    "npm token": ("npm", "NpmDetector"),
    "openai key": ("openai", "OpenAIDetector"),
    "pypi token": ("pypi_token", "PypiTokenDetector"),
    "sendgrid key": ("sendgrid", "SendGridDetector"),
    "slack token": ("slack", "SlackDetector"),
    "square secret": ("square_oauth", "SquareOAuthDetector"),
    "stripe key": ("stripe", "StripeDetector"),
    "telegram token": ("telegram_token", "TelegramBotTokenDetector"),
    "twilio key": ("twilio", "TwilioKeyDetector"),
}
# One pass over a text says whether any detector could find something: most texts have none of these in them.
HINT = re.compile(
    r"A3T[A-Z0-9]|A(?:KIA|GPA|IDA|ROA|IPA|NPA|NVA|SIA)[A-Z0-9]|aws|AccountKey=|://[^\s/:@]*:[^\s/@]+@|gh[opusr]_|glpat-|glrt-|GR1348941|gl\w{2,5}-|eyJ|-us[0-9]"
    r"|_authToken|sk-|sk_live|rk_live|pypi-|SG\.|xox|hooks\.slack|sq0csp|\d{8,10}:[\w-]{35}|[MNO][\w-]{23}\.|AC[a-z0-9]{32}|SK[a-z0-9]{32}"
    r"|-----BEGIN|(?i:password|passwd|passphrase|secret|api_?key|access_?key|auth_?token|bearer)",
)
SHORTEST = 8  # characters of a group that is a secret, and not a part of its form
PRIVATE = re.compile(r"-----BEGIN[A-Z ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END[A-Z ]*PRIVATE KEY(?: BLOCK)?-----|\Z)", re.DOTALL)
NAMED = re.compile(  # a value of some length with a digit in it, given to a name that says what it is
    r"(?i)\b((?:\w+[_-])?(?:password|passwd|passphrase|secret|api_?key|access_?key|auth_?token|client_?secret)\b[\"']?\s*(?:=|:|=>)\s*[\"']?)"
    r"((?=[^\s\"']*\d)(?=[^\s\"']*[A-Za-z])[^\s\"'(){}\[\]<>,;]{8,200})"
)
BEARER = re.compile(r"(?i)\b(authorization[\"']?\s*[:=]\s*[\"']?(?:bearer|basic|token)\s+)([A-Za-z0-9+/_.=-]{16,})")


def redact(value: T) -> T:
    """`value` without secrets, in every text of it: a string, a noun, a list or a mapping. Raises InvalidData for one without end."""
    try:
        return cast("T", _walked(value))
    except RecursionError as error:
        raise InvalidData("a value cannot be stored: it is nested without end") from error


def kinds(text: str) -> list[str]:
    """What kinds of secrets a text holds."""
    return sorted(set(re.findall(r"\[redacted: ([\w ]+)\]", _clean(text))) - set(re.findall(r"\[redacted: ([\w ]+)\]", text)))


def _walked(value: Any) -> Any:
    if isinstance(value, str):
        return _clean(value)
    if is_dataclass(value) and not isinstance(value, type):
        old = {f.name: getattr(value, f.name) for f in fields(value)}
        changed = {name: new for name, inner in old.items() if (new := _walked(inner)) is not inner}
        return replace(value, **changed) if changed else value
    if isinstance(value, Mapping):
        made = {_walked(key): _walked(inner) for key, inner in value.items()}
        return made if any(key not in made or made[key] is not inner for key, inner in value.items()) else value
    if isinstance(value, list | tuple):
        items = [_walked(inner) for inner in value]
        return type(value)(items) if any(new is not inner for new, inner in zip(items, value, strict=True)) else value
    return value


def _clean(text: str) -> str:
    if not HINT.search(text):
        return text
    found = PRIVATE.sub("[redacted: private key]", text)
    found = BEARER.sub(r"\1[redacted: token]", found)
    lines = found.split("\n")
    for place, line in enumerate(lines):
        if HINT.search(line):
            lines[place] = _line(line)
    found = "\n".join(lines)
    return text if found == text else found


def _line(line: str) -> str:
    for kind, detector in _detectors().items():
        for pattern in detector.denylist:
            line = pattern.sub(partial(_named, kind, detector), line)
    return NAMED.sub(lambda m: m[0] if "[redacted" in m[0] else f"{m[1]}[redacted: password or key]", line)


def _named(kind: str, detector: Any, found: re.Match[str]) -> str:
    """A match without its secret: the longest of its groups, or all of it where they only tell kinds of tokens apart."""
    if not any(detector.analyze_string(found[0])):  # by its own further rules it is none
        return found[0]
    inner = max((group for group in found.groups() if group), key=len, default="")
    return found[0].replace(inner, f"[redacted: {kind}]") if len(inner) >= SHORTEST else f"[redacted: {kind}]"


@cache
def _detectors() -> Mapping[str, Any]:
    """Loaded on the first text that could hold a secret: most runs never see one."""
    return {kind: getattr(import_module(f"detect_secrets.plugins.{module}"), name)() for kind, (module, name) in DETECTORS.items()}
