"""What docs/deletion.md lists is what core decides and the controller does."""

import ast
import inspect
import json
import re
from pathlib import Path
from typing import get_args

import pytest
from attrs import fields

from reprieve.core import requests
from reprieve.core.backups import METADATA_FILE, Directory, MetadataPresent, RequestState, write_state
from reprieve.core.durations import format_duration
from reprieve.core.holds import HOLD_FILE
from reprieve.core.outcomes import Outcome
from reprieve.core.reasons import Reason
from reprieve.core.requests import Absent, admit, plan
from reprieve.entrypoints.configuration import DeletionSettings
from reprieve.entrypoints.controller import deletion
from tests.unit.builders import (
    NOW,
    STARTED,
    a_backup,
    a_location,
    a_request,
    a_restore,
    a_snapshot,
    at_work,
    facts,
    in_progress,
    inventory,
)
from tests.unit.test_marks import FOREIGN, UNPROVEN
from tests.unit.test_requests_admission import DEFERRED, REFUSED

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "deletion.md").read_text(encoding="utf-8")
CODE = re.compile(r"`([^`]+)`")
ENDINGS = "How a deletion goes on and ends"


def section(title):
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(title):
    """The cells of a section's table, without its head."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def first_column(title):
    return [name for row in rows(title) for name in CODE.findall(row[0])]


def messages(title):
    """For each reason of a section the patterns of its messages: ``…`` stands for anything."""
    return {
        CODE.findall(row[0])[0]: [re.escape(each).replace("…", ".+") for each in CODE.findall(row[1])]
        for row in rows(title)
    }


def reasons_named_in(module):
    """The members of ``Reason`` that the module's code uses."""
    nodes = ast.walk(ast.parse(inspect.getsource(module)))
    attributes = [node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)]
    return {Reason[node.attr].value for node in attributes if node.value.id == "Reason"}


def test_every_reason_of_a_deletion_is_listed_once():
    listed = [reason for title in ("Refused", "Waiting", ENDINGS) for reason in first_column(title)]

    assert sorted(listed) == sorted(reasons_named_in(requests) | reasons_named_in(deletion))


MORE_REFUSED = [
    pytest.param({"request": a_request(name_fault=fault)}, (), "NameInvalid", "", id=fault)
    for fault in ("spec.backupName must be a text, it is int", "spec must be an object with backupName, it is list")
] + [
    pytest.param(at_work() | {"location": a_location(bucket="another")}, (), "LocationMoved", "", id="moved"),
    pytest.param({"request": in_progress(), "backup": Absent()}, (), "RecordVanished", "", id="vanished"),
    *[pytest.param({"marks": case.values[0]}, (a_snapshot(),), "NotTheBackups", "", id=case.id) for case in FOREIGN],
    pytest.param(
        {"backup": a_backup(snapshot_locations=["vsl-2"])}, (a_snapshot(),), "SnapshotLocationNotNamed", "", id="place"
    ),
]
DECIDED = [
    *[("Refused", *case.values[:3]) for case in [*REFUSED, *MORE_REFUSED]],
    *[("Waiting", case.values[0], (), case.values[1]) for case in DEFERRED],
    *[("Waiting", {"marks": case.values[0]}, (a_snapshot(),), "SnapshotsUnproven") for case in UNPROVEN],
    (ENDINGS, {}, (), "Admitted"),
    (ENDINGS, at_work(), (), "Resumed"),
]


@pytest.mark.parametrize(("title", "given", "items", "reason"), DECIDED)
def test_a_message_reads_as_the_page_shows_it(title, given, items, reason):
    listed = inventory(*items) if isinstance(items, tuple) else items

    answer = admit(facts(**given), listed, now=NOW)

    assert answer.reason == reason
    assert any(re.fullmatch(pattern, answer.message) for pattern in messages(title)[reason]), answer.message


def test_every_refusal_has_a_case_here():
    """Else a message could change unseen."""
    assert {reason for title, _, _, reason in DECIDED if title == "Refused"} == set(first_column("Refused"))


def test_the_stages_stand_in_their_order():
    request = a_request()
    everything = facts(
        request=request,
        restores=[a_restore("r")],
        directory=Directory(MetadataPresent(STARTED)),
        siblings=[a_request("foo-other")],
    )

    assert first_column("The stages") == [stage.name for stage in plan(everything, inventory(a_snapshot())).stages]


def test_every_outcome_is_listed_with_what_follows():
    kinds = {"gone": 0, "wait": 1, "retry": 2, "fail": 3}
    shown = {CODE.findall(row[0])[0]: kinds[re.split(r"\W", row[2])[0]] for row in rows("What a step comes to")}

    assert shown == {outcome.__name__: requests._kind(outcome()) for outcome in get_args(Outcome)}


def test_the_state_annotation_is_listed_key_by_key():
    whole = RequestState(**dict.fromkeys([each.name for each in fields(RequestState)], "x"))

    assert sorted(first_column("The state annotation")) == sorted(json.loads(write_state(whole)))


def test_the_numbers_are_the_defaults():
    settings, retries = DeletionSettings(), section("Retries and the deadline")
    shown = (
        f"{{workers: {settings.workers}, snapshotParallelism: {settings.snapshot_parallelism}, "
        f"attempts: {settings.limits.attempts}, deadline: {format_duration(settings.limits.deadline)}, "
        f"requestMaxAge: {format_duration(settings.request_max_age)}}}"
    )

    assert shown in retries
    assert f"{requests.BACKOFF_FIRST.seconds} s after the first" in retries
    assert f"up to {requests.BACKOFF_LAST.seconds // 60} min" in retries


@pytest.mark.parametrize("name", [HOLD_FILE, METADATA_FILE])
def test_a_file_is_called_as_it_is(name):
    assert f"`{name}`" in PAGE
