"""The configuration file: read, checked against a schema, and turned into values.

Guarantee: an unknown key or a wrong value is an error that names the file, the path in it and what is allowed; no
verb that destroys has a default. An absent section or key has the value of the table below. Not guaranteed: that what
it names exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from attrs import field, frozen

from reprieve.adapters.cloud.endpoints import EndpointPolicy, read_pattern
from reprieve.core.durations import parse_duration
from reprieve.core.errors import InvalidError, ReprieveError
from reprieve.core.objects import ObjectKind
from reprieve.core.requests import DeletionLimits

API_VERSION = "reprieve.dev/v1alpha1"
_WHOLE = 100
SHOWN_LIMIT = 80
PROVIDERS = ("aws", "gcp", "azure")


class ConfigurationError(ReprieveError):
    """The configuration cannot be used; each fault says which file, which path in it, and what is allowed."""

    def __init__(self, *faults: str) -> None:
        """Keep the faults apart, since each has a line of its own."""
        super().__init__("\n".join(faults))
        self.faults = faults


@frozen
class DeletionSettings:
    """How deletions are worked on. ``request_max_age`` is how long a processed request stays to be read."""

    workers: int = 4
    snapshot_parallelism: int = 32
    limits: DeletionLimits = field(factory=DeletionLimits)
    request_max_age: timedelta = timedelta(hours=24)


@frozen
class RetentionSettings:
    """When expired backups get a request."""

    interval: timedelta = timedelta(hours=1)
    keep_last: int = 1
    grace_after_sync: timedelta = timedelta(hours=24)
    max_requests: int = 50


@frozen
class SyncSettings:
    """How records follow the bucket. ``max_removals`` is a share ("20%") or a number of a location's records."""

    interval: timedelta = timedelta(minutes=1)
    max_removals: str = "20%"


@frozen
class ArkPlace:
    """Ark v0.8 has no location objects: its one bucket and its one provider."""

    bucket: str
    provider: str


@frozen
class BackupSettings:
    """The backups room: whose objects, in which dialect, and how."""

    namespace: str = "velero"
    dialect: str = "velero"
    ark: ArkPlace | None = None
    deletion: DeletionSettings = field(factory=DeletionSettings)
    retention: RetentionSettings = field(factory=RetentionSettings)
    sync: SyncSettings = field(factory=SyncSettings)


@frozen
class ShieldSettings:
    """What ``reprieve shield`` prints for an owner kind."""

    collector: bool = True
    namespaces: bool = False


@frozen
class ProtectionEntry:
    """One protected owner kind, with both verbs said."""

    owner: ObjectKind
    on_request: str
    otherwise: str
    dialect: str = ""
    dependents: tuple[ObjectKind, ...] = ()
    allow_delete_by_annotation: bool = False
    shield: ShieldSettings = field(factory=ShieldSettings)
    max_pruned: str = "20%"


@frozen
class BackupsOff:
    """``backups: false``: reprieve leaves backups alone."""


@frozen
class Configuration:
    """The whole file. ``providers`` None means every provider that is there (the local folder's default).

    ``endpoints``: where locations may point beyond the providers' own hosts, and who gets the controller's identity.
    ``untagged``: the providers whose snapshots need no tag of their backup (``requireTags: false``).
    """

    backups: BackupSettings | BackupsOff = field(factory=BackupSettings)
    protection: tuple[ProtectionEntry, ...] = ()
    providers: tuple[str, ...] | None = None
    endpoints: EndpointPolicy = field(factory=EndpointPolicy)
    untagged: frozenset[str] = frozenset()


def _object(properties: Mapping[str, Any], *, required: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "additionalProperties": False,
        "required": list(required),
    }


_DURATION = {"type": "string", "format": "duration"}
_DURATION_OR_OFF = {"type": ["string", "integer"], "format": "duration or 0"}
_SHARE = {"type": ["string", "integer"], "format": "share"}
_COUNT = {"type": "integer", "minimum": 1, "maximum": 10_000}
_KIND = {"type": "string", "format": "kind"}
_VERB = {"enum": ["Delete", "Orphan"]}
_NAME = {"type": "string", "minLength": 1}
_ENDPOINTS = {"type": "array", "items": {"type": "string", "format": "endpoint"}}

_BACKUPS = _object(
    {
        "namespace": _NAME,
        "dialect": {"enum": ["velero", "ark"]},
        "ark": _object({"bucket": _NAME, "provider": {"enum": list(PROVIDERS)}}, required=("bucket", "provider")),
        "deletion": _object(
            {
                "workers": _COUNT,
                "snapshotParallelism": _COUNT,
                "attempts": _COUNT,
                "deadline": _DURATION,
                "requestMaxAge": _DURATION,
            }
        ),
        "retention": _object(
            {
                "interval": _DURATION,
                "keepLast": {"type": "integer", "minimum": 0},
                "graceAfterSync": _DURATION_OR_OFF,
                "maxRequests": _COUNT,
            }
        ),
        "sync": _object({"interval": _DURATION_OR_OFF, "maxRemovals": _SHARE}),
    }
)
_ENTRY = _object(
    {
        "owner": _KIND,
        "dialect": {"enum": ["faros"]},
        "dependents": {"type": "array", "items": _KIND, "minItems": 1},
        "onRequest": _VERB,
        "otherwise": _VERB,
        "allowDeleteByAnnotation": {"type": "boolean"},
        "shield": _object({"collector": {"type": "boolean"}, "namespaces": {"type": "boolean"}}),
        "maxPruned": _SHARE,
    },
    required=("owner", "onRequest", "otherwise"),
)
_CLOUD = _object(
    {
        "providers": {"type": "array", "items": {"enum": list(PROVIDERS)}},
        "endpoints": _ENDPOINTS,
        "podIdentity": _ENDPOINTS,
        **{provider: _object({"requireTags": {"type": "boolean"}}) for provider in PROVIDERS},
    }
)
SCHEMA = _object(
    {
        "apiVersion": {"const": API_VERSION},
        "kind": {"const": "Configuration"},
        "backups": {"if": {"type": "boolean"}, "then": {"const": False}, "else": _BACKUPS},
        "protection": {"type": "array", "items": _ENTRY},
        "cloud": _CLOUD,
    },
    required=("apiVersion", "kind"),
)


def load_configuration(path: Path) -> Configuration:
    """Read a configuration file. Raises ``ConfigurationError``."""
    try:
        data = path.read_bytes()
    except OSError as fault:
        raise ConfigurationError(f"{path}: cannot be read: {fault.strerror or fault}") from fault
    return parse_configuration(data, source=str(path))


def parse_configuration(data: bytes, *, source: str) -> Configuration:
    """Read the one document of a file, by the reader that refuses duplicate keys, other tags and alias bombs.

    Raises ``ConfigurationError``.
    """
    from reprieve.adapters.local.yamltext import SyntaxFault, read_yaml

    try:
        found = [each.data for each in read_yaml(data.decode("utf-8")) if each.data is not None]
    except UnicodeDecodeError as fault:
        raise ConfigurationError(f"{source}: this is no UTF-8 text: save it as UTF-8") from fault
    except SyntaxFault as fault:
        where = f", line {fault.line}" if fault.line else ""
        raise ConfigurationError(f"{source}{where}: is not YAML that can be used: {fault}") from fault
    if len(found) > 1:
        raise ConfigurationError(f"{source}: has {len(found)} documents: write one")
    return read_configuration(found[0] if found else None, source=source)


def read_configuration(document: Any, *, source: str = "configuration") -> Configuration:
    """Check a parsed document and build the configuration. Raises ``ConfigurationError`` that lists every fault."""
    faults = list(_faults(document))
    if faults:
        raise ConfigurationError(*(f"{source}: {fault}" for fault in faults))
    return Configuration(
        backups=_backups(document.get("backups", {})),
        protection=tuple(_entry(entry) for entry in document.get("protection", [])),
        providers=_providers(document.get("cloud", {})),
        endpoints=_endpoints(document.get("cloud", {})),
        untagged=_untagged(document.get("cloud", {})),
    )


def _faults(document: Any) -> Iterator[str]:
    import jsonschema

    checker = jsonschema.FormatChecker(formats=())
    checker.checks("duration")(lambda text: not isinstance(text, str) or _is_duration(text))
    checker.checks("duration or 0")(_is_duration_or_off)
    checker.checks("share")(lambda share: isinstance(share, bool) or _is_share(str(share)))
    checker.checks("endpoint", raises=InvalidError)(lambda text: not isinstance(text, str) or bool(read_pattern(text)))
    checker.checks("kind")(lambda kind: not isinstance(kind, str) or _is_kind(kind))
    validator = jsonschema.Draft202012Validator(SCHEMA, format_checker=checker)
    errors = sorted(
        validator.iter_errors(document), key=lambda error: (list(map(str, error.absolute_path)), error.message)
    )
    for error in errors:
        yield _sentence(error)
    if not errors:
        yield from _cross_faults(document)


def _sentence(error: Any) -> str:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path).lstrip(".")
    return f"{where or 'the document'}: {_what(error)}"


def _what(error: Any) -> str:
    value, rule = error.instance, error.validator_value
    match error.validator:
        case "additionalProperties":
            allowed = ", ".join(error.schema["properties"])
            unknown = ", ".join(sorted(str(key) for key in set(value) - set(error.schema["properties"])))
            return f"unknown key {unknown}; allowed are {allowed}"
        case "required":
            return f"{error.message.split(' is a')[0]} is missing; required are {', '.join(rule)}"
        case "enum":
            return f"{_shown(value)} is not allowed; write one of {', '.join(map(repr, rule))}"
        case "const":
            return f"{_shown(value)} is not allowed; write {rule!r}"
        case "type":
            expected = " or ".join(rule) if isinstance(rule, list) else rule
            return f"must be {expected}, it is {type(value).__name__} {_shown(value)}"
        case "format":
            return str(error.cause) if error.cause else f"{_shown(value)} is not a {rule}; {_FORMATS[rule]}"
        case _:
            return str(error.message)


def _shown(value: Any) -> str:
    """A value as the error shows it; a long one by its beginning."""
    text = repr(value)
    return text if len(text) <= SHOWN_LIMIT else f"{text[:SHOWN_LIMIT]}…"


_FORMATS = {
    "duration": "write one above zero, such as 1h, 30m or 1h30m",
    "duration or 0": "write one such as 1h or 30m, or 0 to switch it off",
    "share": "write a percentage from 1% to 100%, or a number from 1",
    "kind": "write group/version/Kind, or version/Kind for the core group",
}


def _cross_faults(document: Any) -> Iterator[str]:
    """Faults between keys, which a schema says badly."""
    backups = document.get("backups", {})
    if isinstance(backups, Mapping) and backups.get("dialect") == "ark" and "ark" not in backups:
        yield "backups.ark: is missing; dialect ark needs {bucket: …, provider: …}, as Ark has no location objects"
    for number, entry in enumerate(document.get("protection", [])):
        if "dialect" not in entry and "dependents" not in entry:
            yield f"protection[{number}]: write dialect: faros, or dependents: [kinds] that it may own"
    owners = [entry["owner"] for entry in document.get("protection", [])]
    for owner in sorted({owner for owner in owners if owners.count(owner) > 1}):
        yield f"protection: {owner} has {owners.count(owner)} entries; write one"


def _is_duration(text: str) -> bool:
    span = parse_duration(text)
    return span is not None and span > timedelta(0)


def _is_duration_or_off(value: object) -> bool:
    span = parse_duration(str(value))
    return isinstance(value, bool) or (span is not None and span >= timedelta(0))


def _is_share(text: str) -> bool:
    number = text.removesuffix("%")
    return number.isascii() and number.isdigit() and int(number) >= 1 and (number == text or int(number) <= _WHOLE)


def _is_kind(text: str) -> bool:
    try:
        ObjectKind.parse(text)
    except ValueError:
        return False
    return True


def _span(written: str | int | None, default: timedelta) -> timedelta:
    span = None if written is None else parse_duration(str(written))
    return default if span is None else span


def _backups(section: Any) -> BackupSettings | BackupsOff:
    if section is False:
        return BackupsOff()
    base = BackupSettings()
    ark = section.get("ark")
    return BackupSettings(
        namespace=section.get("namespace", base.namespace),
        dialect=section.get("dialect", base.dialect),
        ark=ArkPlace(ark["bucket"], ark["provider"]) if ark else None,
        deletion=_deletion(section.get("deletion", {}), base.deletion),
        retention=_retention(section.get("retention", {}), base.retention),
        sync=_sync(section.get("sync", {}), base.sync),
    )


def _deletion(section: Mapping[str, Any], base: DeletionSettings) -> DeletionSettings:
    return DeletionSettings(
        workers=section.get("workers", base.workers),
        snapshot_parallelism=section.get("snapshotParallelism", base.snapshot_parallelism),
        limits=DeletionLimits(
            section.get("attempts", base.limits.attempts), _span(section.get("deadline"), base.limits.deadline)
        ),
        request_max_age=_span(section.get("requestMaxAge"), base.request_max_age),
    )


def _retention(section: Mapping[str, Any], base: RetentionSettings) -> RetentionSettings:
    return RetentionSettings(
        interval=_span(section.get("interval"), base.interval),
        keep_last=section.get("keepLast", base.keep_last),
        grace_after_sync=_span(section.get("graceAfterSync"), base.grace_after_sync),
        max_requests=section.get("maxRequests", base.max_requests),
    )


def _sync(section: Mapping[str, Any], base: SyncSettings) -> SyncSettings:
    return SyncSettings(
        _span(section.get("interval"), base.interval), str(section.get("maxRemovals", base.max_removals))
    )


def _entry(entry: Mapping[str, Any]) -> ProtectionEntry:
    shield = entry.get("shield", {})
    return ProtectionEntry(
        owner=ObjectKind.parse(entry["owner"]),
        on_request=entry["onRequest"],
        otherwise=entry["otherwise"],
        dialect=entry.get("dialect", ""),
        dependents=tuple(ObjectKind.parse(kind) for kind in entry.get("dependents", [])),
        allow_delete_by_annotation=entry.get("allowDeleteByAnnotation", False),
        shield=ShieldSettings(shield.get("collector", True), shield.get("namespaces", False)),
        max_pruned=str(entry.get("maxPruned", "20%")),
    )


def _endpoints(section: Mapping[str, Any]) -> EndpointPolicy:
    lists = {key: [read_pattern(each) for each in section.get(key, [])] for key in ("endpoints", "podIdentity")}
    return EndpointPolicy(lists["endpoints"], lists["podIdentity"], section)


def _untagged(section: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(each for each in PROVIDERS if section.get(each, {}).get("requireTags", True) is False)


def _providers(section: Mapping[str, Any]) -> tuple[str, ...] | None:
    return tuple(section["providers"]) if "providers" in section else None
