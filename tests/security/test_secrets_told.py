"""Whoever reads a status, an event, a log or a plan reads no credential.

An endpoint has seen the credential that came with a call, and may repeat it in its error, wrapped over lines: a session
token got into a status that way. Here every provider's endpoint repeats all that it was ever given, in a document of
the provider's own, in whatever form.
"""

import base64
import json
import textwrap
from itertools import cycle
from urllib.parse import quote

import pytest
import structlog
from azure.core.pipeline.policies import SansIOHTTPPolicy
from structlog.testing import capture_logs

from reprieve.adapters.cloud.aws import AwsSnapshots
from reprieve.adapters.cloud.azure import AzureSnapshots
from reprieve.adapters.cloud.buckets import CloudObjectStores
from reprieve.adapters.cloud.gcp import GcpSnapshots
from reprieve.adapters.cloud.known import remember
from reprieve.adapters.cloud.stores import CloudSnapshotStores
from reprieve.entrypoints.cli import render
from reprieve.entrypoints.cli.logs import configure_logging
from reprieve.entrypoints.controller.runtime import plan_once
from tests.integration import azure_compute, ec2, gcp_compute
from tests.integration.buckets_http import BucketServer, xml_error
from tests.integration.cloud_http import closing, stand_ins
from tests.integration.gcp_compute import private_key

KEY = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
SESSION = base64.b64encode(bytes(range(7, 247))).decode()
POD = base64.b64encode(bytes(range(247, 7, -1))).decode()
ACCOUNT_KEY = base64.b64encode(bytes(range(64, 128))).decode()
CLIENT_SECRET = "Q~8aB-client.secret~of_entra"
BEARER = "eyJhbGciOiJSUzI1NiJ9." + base64.urlsafe_b64encode(bytes(range(200))).decode().rstrip("=")
FORMS = {
    "wrapped": lambda secret: "\n".join(textwrap.wrap(secret, 20)),
    "wrapped-as-one-line": lambda secret: "\\n".join(textwrap.wrap(secret, 20)),
    "for-a-url": lambda secret: quote(secret, safe=""),
    "in-base64": lambda secret: "\r\n ".join(textwrap.wrap(base64.b64encode(b"user:" + secret.encode()).decode(), 40)),
    "as-it-is": str,
}
AWS = f"""[default]
aws_access_key_id = AKIAIOSFODNN7EXAMPLE
aws_secret_access_key = {KEY}
aws_session_token = {SESSION}
"""
GCP = json.dumps(
    {
        "type": "service_account",
        "project_id": gcp_compute.PROJECT,
        "client_email": "a@b.iam.gserviceaccount.com",
        "private_key": private_key(),
        "private_key_id": "1",
    }
)
AZURE = (
    f"AZURE_TENANT_ID=t\nAZURE_CLIENT_ID=c\nAZURE_CLIENT_SECRET={CLIENT_SECRET}\nMY_KEY={ACCOUNT_KEY}\n"
    f"AZURE_SUBSCRIPTION_ID={azure_compute.SUBSCRIPTION}\n"
)
SECRETS = [KEY, SESSION, POD, ACCOUNT_KEY, CLIENT_SECRET, BEARER, "".join(private_key().split("\n")[1:-2])]


class Echo(BucketServer):
    """Refuses every call, and repeats in the refusal what ever came with one, and what else its client has."""

    def __init__(self, forms):
        self.forms, self.sent = cycle(forms), set()
        super().__init__(self.refuse)

    def refuse(self, request):
        headers = {name.lower(): value for name, value in request.headers.items()}
        bearer = headers.get("authorization", "").partition("Bearer ")[2]
        self.sent |= {token for token in (bearer, headers.get("x-amz-security-token", "")) if token}
        is_azure = "x-ms-version" in headers or request.path.startswith("/subscriptions")
        its = [ACCOUNT_KEY, CLIENT_SECRET] if is_azure else [KEY] if "x-amz-date" in headers else []
        said = " and ".join(next(self.forms)(secret) for secret in [*its, *sorted(self.sent)])
        return self.document(request, f"The token {said} is not valid")

    def document(self, request, message):
        if "compute/v1" in request.path:
            return gcp_compute.refusal(403, "forbidden", message)
        if request.path.startswith("/subscriptions"):
            return azure_compute.refusal(403, "AuthorizationFailed", message)
        if b"Action=" in request.body:
            return ec2.refusal("AuthFailure", message, status=401)
        return xml_error(403, "InvalidToken", message)


class Signed(SansIOHTTPPolicy):
    """Sends a token as azure-identity would, whose server is not to be asked here."""

    def on_request(self, request):
        request.http_request.headers["Authorization"] = f"Bearer {BEARER}"


def letters(text):
    return "".join(filter(str.isalnum, text))


def leaked(secrets, text):
    """Pieces of 16 letters and digits of a secret, or of base64 of it, that a text holds."""
    text = letters(text)
    forms = [form for s in secrets for form in (s, base64.b64encode(b"user:" + s.encode()).decode()[8:])]
    return [
        piece for form in map(letters, forms) for at in range(len(form) - 15) if (piece := form[at : at + 16]) in text
    ]


def openers(url):
    azure = AzureSnapshots(endpoint=url, authentication_policy=Signed())
    return {"aws": AwsSnapshots(endpoint=url), "gcp": GcpSnapshots(endpoint=url), "azure": azure}


def everything_told(strangers, capsys):
    """Run and plan; gives all that anybody could read afterwards but the Secrets themselves."""
    with capture_logs() as logs:
        report, plan = strangers.report(), strangers.report(plan_once)
    for output in ("json", "table"):
        render.decisions(report, output)
        render.decisions(plan, output)
    said = capsys.readouterr()
    objects = [each for each in strangers.store.snapshot() if each["kind"] != "Secret"]
    return "\n".join(map(str, [said.out, said.err, logs, report, plan, strangers.events.events, json.dumps(objects)]))


@pytest.mark.parametrize("forms", [["wrapped"], [*FORMS]], ids=["wrapped", "each-form-in-turn"])
def test_no_message_tells_a_credential_that_an_endpoint_repeats(strangers, capsys, forms, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAPODPODPODPODPOD0")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY[::-1])
    monkeypatch.setenv("AWS_SESSION_TOKEN", POD)
    with closing(Echo(map(FORMS.get, forms))) as echo:
        strangers.object_stores = CloudObjectStores(policy=stand_ins(strangers.files.url, echo.url))
        strangers.snapshot_stores = CloudSnapshotStores(openers=openers(echo.url))
        aws = {"s3Url": echo.url, "s3ForcePathStyle": "true"}
        strangers.attack("aws", AWS, aws)
        strangers.attack("aws", "", aws, credential=False)
        strangers.attack("gcp", GCP, {"storeEndpointURI": echo.url})
        strangers.attack("azure", AZURE, {"storageAccountURI": echo.url, "storageAccountKeyEnvVar": "MY_KEY"})
        told = everything_told(strangers, capsys)

    assert {SESSION, POD, BEARER} <= echo.sent
    assert len(echo.sent) > 3  # Google's, which are signed anew
    assert leaked([*SECRETS, *echo.sent], told) == []
    assert told.count("[hidden]") >= 2 * len(strangers.names)


def test_no_log_tells_a_credential_that_a_traceback_quotes(capsys):
    """An error of ours that nobody foresaw is logged with all that led to it, an endpoint's words among them."""
    remember(SESSION)
    configure_logging("info")
    error = KeyError("x")
    error.__cause__ = ValueError("\n".join(textwrap.wrap(SESSION, 20)))
    structlog.get_logger().error("reconcile failed", fault=SESSION, number=1, exc_info=error)

    said = capsys.readouterr().err
    assert "KeyError" in said
    assert leaked([SESSION], said) == []
