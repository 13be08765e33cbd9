"""Which hosts may be asked at all, and with whose identity: the operator's word over what a location says.

Who may write a location chooses where this process sends its requests and tokens. So a location may name its
provider's own hosts, and beyond them only what the operator's configuration lists. Pure: nothing is resolved, nothing
is asked.

Guarantee: an address is read once, strictly, and what is judged is what is contacted, the bucket's own host included;
a form that two readers could take for two hosts (decimal and hexadecimal addresses, user parts, control characters,
names that are not ASCII) is refused. The addresses of metadata services are never reached by way of a location.
Not guaranteed: that an allowed host is what it says; TLS tells, where the endpoint has it.
"""

from __future__ import annotations

import enum
import ipaddress
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, assert_never

from attrs import field, frozen

from reprieve.core.errors import InvalidError
from reprieve.core.values import as_tuple

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

PORTS: Mapping[str, int] = {"http": 80, "https": 443}
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*", re.ASCII)
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-f:.]{2,45}\]|[a-z0-9._*-]{1,253})(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>(?:/(?!\.{1,2}(?:/|\Z))[a-z0-9._~-]+){0,16}/?)",
    re.ASCII | re.IGNORECASE,
)
_NUMERIC = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)", re.ASCII)
HOW = "http(s)://host[:port] is allowed"


@frozen
class Authority:
    """Scheme, host and port that a request goes to. ``host`` is in lower case; an IPv6 address has no brackets."""

    scheme: str
    host: str
    port: int

    @property
    def address(self) -> Address | None:
        """The host as an address, None for a name."""
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None

    @property
    def netloc(self) -> str:
        """Host and port as a URL writes them; the scheme's own port is left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.netloc}"


@frozen
class Url:
    """An endpoint's address: where it is, and the path below which the bucket stands (no slash at its end)."""

    authority: Authority
    path: str = ""

    def __str__(self) -> str:
        return f"{self.authority}{self.path}"


@frozen
class Pattern:
    """An entry of the operator's list: one authority, or with ``below`` every name below its host."""

    authority: Authority
    below: bool = False

    def fits(self, authority: Authority) -> bool:
        """Whether an authority is meant by the entry."""
        if not self.below:
            return authority == self.authority
        ours = self.authority
        same = (authority.scheme, authority.port) == (ours.scheme, ours.port)
        return same and authority.address is None and authority.host.endswith(f".{ours.host}")

    def __str__(self) -> str:
        return str(self.authority).replace("://", "://*.", 1) if self.below else str(self.authority)


def read_url(text: str) -> Url:
    """Read the address of an endpoint. Raises ``InvalidError`` for anything that could be read in two ways."""
    found = _URL.fullmatch(text)
    if found is None:
        raise InvalidError(f"{text[:200]!r} is no address of an endpoint: {HOW}")
    scheme, host = found["scheme"].lower(), found["host"].lower()
    port = int(found["port"]) if found["port"] else PORTS[scheme]
    if not 0 < port < 2**16:
        raise InvalidError(f"{text[:200]!r} has no port from 1 to 65535")
    if "*" in host:
        raise InvalidError(f"{text[:200]!r} is no address of an endpoint: {HOW}")
    return Url(Authority(scheme, _host(host, text), port), found["path"].rstrip("/"))


def read_pattern(text: str) -> Pattern:
    """Read an entry of the configuration: ``https://host[:port]``, or ``https://*.domain`` for every name below one.

    Raises ``InvalidError``, also for what no location may ever name.
    """
    scheme, sign, rest = text.partition("://")
    below = rest.startswith("*.")
    url = read_url(f"{scheme}{sign}{rest.removeprefix('*.')}")
    authority = url.authority
    if url.path:
        raise InvalidError(f"{text[:200]!r} has a path: only scheme, host and port are compared, leave it out")
    if below and (authority.address is not None or "." not in authority.host):
        raise InvalidError(f"{text[:200]!r}: *. must stand before a domain of two labels or more")
    if authority.address is not None and _never(authority.address):
        raise InvalidError(f"{text[:200]!r} is an address that no location may name: metadata services are there")
    return Pattern(authority, below)


def _host(host: str, text: str) -> str:
    """The host in the one form that all readers agree on."""
    if host.startswith("["):
        try:
            return str(ipaddress.IPv6Address(host[1:-1]))
        except ValueError as error:
            raise InvalidError(f"{text[:200]!r}: {host} is no IPv6 address") from error
    if _NUMERIC.fullmatch(host.rpartition(".")[2]):  # browsers and HTTP clients read such a host as an IPv4 address
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError as error:
            raise InvalidError(f"{text[:200]!r}: {host} is no IPv4 address of four decimal numbers") from error
    if not _NAME.fullmatch(host):
        raise InvalidError(f"{text[:200]!r}: {host} is no name of a host")
    return host


# The providers' own hosts

_BUCKET = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_ACCOUNT = r"[a-z0-9]{3,24}"
REGION = r"[a-z]{2,4}(?:-[a-z]{2,12}){1,3}-[0-9]{1,2}"
"""A region of AWS, of any partition."""

AWS_DOMAINS: Mapping[str, str] = {
    "cn-": "amazonaws.com.cn",
    "us-iso-": "c2s.ic.gov",
    "us-isob-": "sc2s.sgov.gov",
    "eu-isoe-": "cloud.adc-e.uk",
    "us-isof-": "csp.hci.ic.gov",
    "eusc-": "amazonaws.eu",
}
"""The domains of AWS' partitions by the beginning of their regions' names; every other region is in amazonaws.com."""

_AWS = "|".join(re.escape(domain) for domain in ("amazonaws.com", *AWS_DOMAINS.values()))
_AZURE = r"(?:core\.windows\.net|core\.usgovcloudapi\.net|core\.chinacloudapi\.cn)"

OWN: Mapping[str, re.Pattern[str]] = {
    "aws": re.compile(
        rf"(?:(?:{_BUCKET}\.)?s3(?:-fips|-accelerate|-external-1)?(?:\.dualstack)?(?:[.-]{REGION})?"
        rf"|{_BUCKET}\.s3-accesspoint(?:-fips)?(?:\.dualstack)?\.{REGION})\.(?:{_AWS})",
        re.ASCII,
    ),
    "gcp": re.compile(
        rf"(?:{_BUCKET}\.)?storage\.googleapis\.com|storage\.{_LABEL}\.rep\.googleapis\.com"
        rf"|storage-{_LABEL}\.p\.googleapis\.com",
        re.ASCII,
    ),
    "azure": re.compile(
        rf"{_ACCOUNT}(?:-secondary)?\.blob\.{_AZURE}|{_ACCOUNT}\.z[0-9]{{1,2}}\.blob\.storage\.azure\.net",
        re.ASCII,
    ),
}
"""Hosts of object storage that belong to the provider itself, whoever's bucket it is.

No whole domain: below amazonaws.com stand customers' machines and load balancers too, and names of private endpoints
that resolve to whatever address a stranger gave them. Over HTTPS alone.
"""


def aws_domain(region: str) -> str:
    """The domain of the partition that a region is in."""
    return next((d for start, d in AWS_DOMAINS.items() if region.startswith(start)), "amazonaws.com")


# The judgement


class PlaceRefusedError(InvalidError):
    """The operator's configuration does not allow what a location points at, or this process' own identity there.

    ``endpoints`` and ``pod_identity`` are what would have to be added to it.
    """

    def __init__(self, message: str, endpoints: tuple[str, ...] = (), pod_identity: tuple[str, ...] = ()) -> None:
        """Keep what is missing from the configuration beside the message."""
        super().__init__(message)
        self.endpoints = endpoints
        self.pod_identity = pod_identity


class Standing(enum.Enum):
    """Why an endpoint may be asked, or that it may not."""

    OWN = "the provider's own host"
    LISTED = "in the operator's list, by its name"
    BELOW = "in the operator's list, as a name below a domain"
    UNLISTED = "not in the operator's list"


@frozen
class EndpointPolicy:
    """What the operator allows beyond the providers' own hosts. Without arguments: nothing.

    ``endpoints``: where locations may point. ``pod_identity``: of these, who gets this process' own identity.
    ``section``: the configuration's section ``cloud`` as it is written, so that a refusal can print it with what is
    missing. ``bearer_over_http``: whether bearer tokens go out without TLS; no configuration says so, it is for
    stand-ins.
    """

    endpoints: tuple[Pattern, ...] = field(default=(), converter=as_tuple)
    pod_identity: tuple[Pattern, ...] = field(default=(), converter=as_tuple)
    section: Mapping[str, Any] = field(factory=dict, hash=False)
    bearer_over_http: bool = False

    def standing(self, provider: str, authority: Authority) -> Standing:
        """Whether an endpoint may be asked, and why."""
        own = OWN.get(provider)
        if own and (authority.scheme, authority.port) == ("https", PORTS["https"]) and own.fullmatch(authority.host):
            return Standing.OWN
        fitting = [pattern.below for pattern in self.endpoints if pattern.fits(authority)]
        if not fitting:
            return Standing.UNLISTED
        return Standing.BELOW if all(fitting) else Standing.LISTED

    def trusts(self, authority: Authority) -> bool:
        """Whether the operator gives this process' own identity to an endpoint that is not its provider's own."""
        return any(pattern.fits(authority) for pattern in self.pod_identity)

    def line(self, *, endpoints: Iterable[str] = (), pod_identity: Iterable[str] = ()) -> str:
        """The section ``cloud`` of the configuration with these besides, as one line of YAML."""
        added = {
            "endpoints": [*dict.fromkeys([*map(str, self.endpoints), *endpoints])],
            "podIdentity": [*dict.fromkeys([*map(str, self.pod_identity), *pod_identity])],
        }
        whole = {**self.section, **{key: value for key, value in added.items() if value}}
        return f"cloud: {{{', '.join(f'{key}: {json.dumps(value)}' for key, value in whole.items())}}}"


@frozen
class Place:
    """Where a location points.

    ``what``: how messages call it; ``operators``: the address is the environment's, not the location's; ``as_pod``: it
    is asked with this process' own identity; ``bearer``: with a bearer token.
    """

    what: str
    provider: str
    authority: Authority
    operators: bool = False
    as_pod: bool = False
    bearer: bool = False


def admit(place: Place, policy: EndpointPolicy) -> Standing:
    """Say why a place may be asked.

    Raises ``PlaceRefusedError`` with what the operator would have to allow, ``InvalidError`` where nobody can allow it.
    """
    authority, what = place.authority, place.what
    if authority.address is not None and _never(authority.address):
        raise InvalidError(f"{what}: {authority} is an address that no location may name: metadata services are there")
    if place.bearer and authority.scheme != "https" and not policy.bearer_over_http:
        raise InvalidError(f"{what}: {authority}: a token is sent over https only, never in the clear: write https://")
    standing = Standing.LISTED if place.operators else policy.standing(place.provider, authority)
    endpoints = (str(authority),) if standing is Standing.UNLISTED else ()
    known = standing is Standing.OWN or place.operators or policy.trusts(authority)
    identity = (str(authority),) if place.as_pod and not known else ()
    if endpoints or identity:
        raise PlaceRefusedError(_refusal(place, policy, endpoints, identity), endpoints, identity)
    return standing


def _refusal(place: Place, policy: EndpointPolicy, endpoints: tuple[str, ...], identity: tuple[str, ...]) -> str:
    said = []
    if endpoints:
        said.append(f"{place.authority} is neither a host of {place.provider} itself nor in cloud.endpoints")
    if identity:
        said.append("it names no Secret, and the controller's own identity goes to the provider's own hosts only")
    line = policy.line(endpoints=endpoints, pod_identity=identity)
    other = ". podIdentity is not needed where the location names a Secret as its credential" if identity else ""
    return f"{place.what}: {'; '.join(said)}; to allow it, write into the configuration: {line}{other}"


# Addresses

_NEVER = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",
        "169.254.0.0/16",  # link-local: the metadata services of all clouds, of containers and of pods
        "100.100.100.200/32",  # Alibaba's
        "168.63.129.16/32",  # Azure's
        "192.0.0.192/32",  # Oracle's
        "224.0.0.0/4",
        "255.255.255.255/32",
        "::/128",
        "fe80::/10",
        "fd00:ec2::/32",  # AWS'
        "fd20:ce::/64",  # Google's
        "ff00::/8",
    )
)


def may_connect(address: str, standing: Standing) -> bool:
    """Whether a connection may be made to what an endpoint's name resolved to.

    Private addresses are fine for all that is allowed: a store in the cluster has one, and so has a provider's host
    behind a private endpoint. Loopback is for what the operator listed by its name, metadata services for nobody.
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    match standing:
        case Standing.LISTED:
            loopback = True
        case Standing.OWN | Standing.BELOW:
            loopback = False
        case Standing.UNLISTED:
            return False
        case _:
            assert_never(standing)
    return not _never(found) and (loopback or not any(each.is_loopback for each in _meant(found)))


def _never(address: Address) -> bool:
    return any(each in network for each in _meant(address) for network in _NEVER if each.version == network.version)


_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")


def _meant(address: Address) -> tuple[Address, ...]:
    """The address, and the IPv4 addresses that an IPv6 one may stand for."""
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64 or (address in _COMPATIBLE and not address.is_loopback):
        inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return (address, *(each for each in inner if each is not None))
