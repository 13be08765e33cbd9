"""ValidatingAdmissionPolicies as an API server evaluates them, with a stand-in for its ``authorizer``."""

import json
from functools import cache

import celpy
from attrs import evolve, field, frozen

from reprieve.adapters.local import denial

ENVIRONMENT = celpy.Environment()


@frozen
class Check:
    """What the authorizer is asked; ``may`` answers it."""

    may: object
    user: str
    parts: dict = field(factory=dict)

    def on(self, **part):
        return evolve(self, parts={**self.parts, **{name: str(value) for name, value in part.items()}})


FUNCTIONS = {
    "group": lambda check, value: check.on(group=value),
    "resource": lambda check, value: check.on(resource=value),
    "namespace": lambda check, value: check.on(namespace=value),
    "name": lambda check, value: check.on(name=value),
    "check": lambda check, verb: check.on(verb=verb),
    "allowed": lambda check: celpy.celtypes.BoolType(check.may(check.user, **check.parts)),
}


@cache
def program(expression):
    return ENVIRONMENT.program(ENVIRONMENT.compile(expression), functions=FUNCTIONS)


def evaluate(expression, context):
    return program(expression).evaluate(
        {name: value if isinstance(value, Check) else celpy.json_to_cel(value) for name, value in context.items()}
    )


def is_matched(spec, request):
    """Whether a rule of the policy names the request's resource and operation."""
    resource, sub = request["resource"], request.get("subResource", "")
    names = {"*/*", f"{resource['resource']}/{sub}"} if sub else {"*", "*/*", resource["resource"]}
    return any(
        {"*", resource["group"]} & set(rule["apiGroups"])
        and request["operation"] in rule["operations"]
        and names & set(rule["resources"])
        for rule in spec["matchConstraints"]["resourceRules"]
    )


def denied(manifests, request, new, old, *, may):
    """What the policies say to a request; empty when it goes through. An error denies, as ``failurePolicy: Fail`` does.

    ``request`` is the AdmissionRequest as the API server shows it, without its empty fields; ``may`` answers for the
    authorizer: ``may(user, group=…, resource=…, namespace=…, name=…, verb=…)``.
    """
    policies = [each["spec"] for each in manifests if each["kind"] == "ValidatingAdmissionPolicy"]
    check = Check(may, request["userInfo"]["username"])
    context = {"request": request, "object": new, "oldObject": old, "authorizer": check}
    return next((said for spec in policies if (said := _said(spec, context))), "")


def _said(spec, context):
    if not is_matched(spec, context["request"]):
        return ""
    try:
        if not all(evaluate(each["expression"], context) for each in spec.get("matchConditions", ())):
            return ""
        variables = {}
        for each in spec.get("variables", ()):
            variables[each["name"]] = evaluate(each["expression"], {**context, "variables": variables})
        context = {**context, "variables": variables}
        for each in spec["validations"]:
            if not evaluate(each["expression"], context):
                return str(evaluate(each["messageExpression"], context))
    except celpy.CELEvalError as fault:
        return f"the evaluation failed: {fault}"
    return ""


def admission(manifests, *, may):
    """The hook of a local API server for some policies."""

    def hook(request):
        kind = request.kind
        context = {
            "operation": request.operation,
            "userInfo": {"username": request.user},
            "kind": {"group": kind.type.group, "version": kind.type.version, "kind": kind.kind},
            "resource": {"group": kind.type.group, "version": kind.type.version, "resource": kind.plural},
            "namespace": request.namespace,
            "name": request.name,
            "subResource": request.subresource,
        }
        told = {name: value for name, value in context.items() if value}
        said = denied(manifests, told, _plain(request.object), _plain(request.old), may=may)
        if said:
            name = manifests[0]["metadata"]["name"]
            raise denial(request, said, policy=name, binding=name, reason="Forbidden")

    return hook


def _plain(document):
    """A copy as JSON has it: the store's own objects are not to be looked into."""
    return json.loads(json.dumps(document))
