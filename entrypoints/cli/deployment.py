"""The manifests: what the controller is deployed with, as text with its reasons, narrowed by the configuration.

``deploy/`` in the source tree is what this gives for the default configuration; a test holds the two together.

Guarantee: whatever is put in (names, an image, a configuration file) is one value where it stands, and changes nothing
around it. Not guaranteed: that the cluster's network enforces the NetworkPolicy.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Iterator
from importlib.resources import files
from string import Template

from attrs import field, frozen

from reprieve.core.objects import ObjectKind
from reprieve.core.values import as_tuple
from reprieve.entrypoints.cli.screen import printable
from reprieve.entrypoints.configuration import Configuration, ConfigurationError
from reprieve.entrypoints.controller.rights import Role, Rule, roles

ACCOUNT = "reprieve"
IMAGE = "reprieve:VERSION"
DEFAULT_SECRETS = ("cloud-credentials",)
PARTS = ("rbac", "network", "config", "deployment", "kustomization")
APPLIED = PARTS[:-1]
"""What goes into a cluster; the last one is for kustomize alone."""
_ALWAYS = {443, 6443}
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9./:@_-]*[A-Za-z0-9]")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off"})  # what YAML takes for something else than text

_ACCOUNT = """\
# What the controller may do, and nothing else: tests hold each line against the calls that are really made.
#
# Velero runs beside it with --disable-controllers=backup-deletion,gc,backup-sync and keeps its own account.
apiVersion: v1
kind: ServiceAccount
metadata:
  name: $account
  namespace: $namespace
  # annotations:      # the cloud's own way to give the pod credentials, such as
  #   eks.amazonaws.com/role-arn: arn:aws:iam::111122223333:role/reprieve
automountServiceAccountToken: false # for the controller's pod alone, which asks for it
"""
_ROLE = """\
# $purpose
apiVersion: rbac.authorization.k8s.io/v1
kind: $kind
metadata:
  name: $name$inside
rules:
$rules
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ${kind}Binding
metadata:
  name: $name$inside
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: $kind
  name: $name
subjects:
  - kind: ServiceAccount
    name: $account
    namespace: $namespace
"""


@frozen
class Deployed:
    """What is deployed: the configuration, where, of which image, and what it may read and look through.

    ``text`` is the configuration file as it was written; empty for the default one. ``secrets`` and ``carried`` as for
    ``rights.roles``.
    """

    configuration: Configuration
    namespace: str
    text: str = ""
    image: str = IMAGE
    secrets: tuple[str, ...] = field(default=DEFAULT_SECRETS, converter=as_tuple)
    carried: tuple[ObjectKind, ...] = field(default=(), converter=as_tuple)


def manifests(deployed: Deployed, parts: Iterable[str] = APPLIED) -> str:
    """The YAML documents of these parts, in that order."""
    return "---\n".join(_part(deployed, part) for part in parts)


def _part(deployed: Deployed, part: str) -> str:
    if part == "rbac":
        return "---\n".join(_rbac(deployed))
    values = {"namespace": _scalar(deployed.namespace), "image": _scalar(deployed.image)}
    if part == "config":
        values["configuration"] = _block(deployed.text or _filled("reprieve", values))
    if part == "network":
        values["endpoints"] = "".join(_endpoints(deployed.configuration))
    return _filled(part, values)


def _filled(name: str, values: dict[str, str]) -> str:
    template = (files("reprieve.entrypoints") / "deploy" / f"{name}.yaml").read_text(encoding="utf-8")
    return Template(template).substitute(values)


def _rbac(deployed: Deployed) -> Iterator[str]:
    shared = {"account": _scalar(ACCOUNT), "namespace": _scalar(deployed.namespace)}
    yield Template(_ACCOUNT).substitute(shared)
    for role in roles(deployed.configuration, secrets=deployed.secrets, carried=deployed.carried):
        yield Template(_ROLE).substitute(shared, **_role(role))


def _role(role: Role) -> dict[str, str]:
    return {
        "purpose": role.purpose,
        "kind": "Role" if role.namespace else "ClusterRole",
        "name": _scalar(role.name),
        "inside": f"\n  namespace: {_scalar(role.namespace)}" if role.namespace else "",
        "rules": "\n".join(line for rule in role.rules for line in _rule(rule)),
    }


def _rule(rule: Rule) -> Iterator[str]:
    yield f"  - apiGroups: [{_scalar(rule.group)}]"
    yield f"    resources: [{', '.join(map(_scalar, rule.resources))}]"
    yield from (f"    # {line}" for line in rule.remarks)
    if rule.names:
        yield f"    resourceNames: [{', '.join(map(_scalar, rule.names))}]"
    yield "    verbs:"
    yield from (f"      - {verb} # {why}" for verb, why in rule.verbs.items())


def _endpoints(configuration: Configuration) -> Iterator[str]:
    """The ports of the endpoints that the configuration allows beside the providers' own."""
    ports = {each.authority.port for each in configuration.endpoints.endpoints}
    for port in sorted(ports - _ALWAYS):
        yield f"\n        - {{protocol: TCP, port: {port}}} # cloud.endpoints"


def _scalar(text: str) -> str:
    """A text as YAML reads it as that text again, on one line, whatever is in it."""
    return text if _PLAIN.fullmatch(text) and text.lower() not in _WORDS else json.dumps(text)


def _block(text: str) -> str:
    """A text of several lines as a literal block. Raises ``ConfigurationError`` for what such a block cannot hold."""
    lines = text.strip("\n").split("\n")
    for number, line in enumerate(lines, start=1):
        if printable(line) != line:
            raise ConfigurationError(
                f"the configuration, line {number}: has what cannot be seen, or is too long, and so is no text for a "
                f"ConfigMap: {printable(line)[:200]}"
            )
    indented = "2" if lines[0].startswith(" ") else ""
    return f"|{indented}\n" + textwrap.indent("\n".join(lines), "    ")
