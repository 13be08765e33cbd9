"""``reprieve manifests``: what it prints can be applied, is narrowed as it was asked for, and says what it assumes."""

import json

import pytest
import yaml

from tests.integration.folders import location, make_folder, snapshot_location

CONFIGURATION = "apiVersion: reprieve.dev/v1alpha1\nkind: Configuration\n"
VERBS = "onRequest: Delete, otherwise: Orphan"
FAROS = f"{CONFIGURATION}protection:\n- {{owner: faros.pusher.com/v1alpha1/GitTrackObject, dialect: faros, {VERBS}}}\n"


@pytest.fixture
def folder(tmp_path, capsys):
    return make_folder(tmp_path / "world", capsys)


def naming(made, secret):
    """A location with a credential of its own."""
    return made | {"spec": made["spec"] | {"credential": {"name": secret, "key": "cloud"}}}


def configured(folder, text):
    path = folder.path.parent / "reprieve.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def documents(said):
    return list(yaml.safe_load_all(said.out))


def of_kind(said, kind):
    (one,) = (each for each in documents(said) if each["kind"] == kind)
    return one


def secrets(said):
    """The names of the Secrets that may be read, rule by rule."""
    rules = [rule for each in documents(said) if each["kind"].endswith("Role") for rule in each["rules"]]
    return [rule["resourceNames"] for rule in rules if rule["resources"] == ["secrets"]]


def test_it_prints_all_that_is_applied_and_needs_no_cluster(folder):
    said = folder.run("manifests", local=False)

    assert (said.code, said.err) == (0, "")
    kinds = [each["kind"] for each in documents(said)]
    bound = ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"]
    assert kinds == ["ServiceAccount", *bound, "NetworkPolicy", "ConfigMap", "Deployment"]
    assert secrets(said) == [["cloud-credentials"]]


def test_json_is_one_list_of_the_same(folder):
    printed, listed = folder.run("manifests", local=False), folder.run("manifests", "-o", "json", local=False)

    assert json.loads(listed.out) == {"apiVersion": "v1", "kind": "List", "items": documents(printed)}


def test_secrets_are_those_that_are_named(folder):
    said = folder.run("manifests", "--secret", "one", "--secret", "two", local=False)

    assert secrets(said) == [["one", "two"]]


def test_secrets_of_the_locations_are_told_one_by_one(folder):
    """Whoever may create a location wrote the name: the operator sees each before it is applied."""
    folder.put(naming(location("mine"), "cloud"), naming(snapshot_location("disks"), "disks"), location("without"))

    said = folder.run("manifests", "--from-locations")

    assert (said.code, secrets(said)) == (0, [["cloud", "disks"]])
    assert "location mine names Secret cloud" in said.err
    assert "location disks names Secret disks" in said.err


def test_without_a_location_that_names_one_no_secret_may_be_read(folder):
    assert secrets(folder.run("manifests", "--from-locations")) == []


def test_the_configuration_stands_in_it_as_it_was_written(folder):
    text = f"\n{CONFIGURATION}# größer: »#« und ${{x}}\nbackups:\n    namespace: elsewhere\n\n\n"
    said = folder.run("manifests", "--config", configured(folder, text), local=False)

    assert said.code == 0
    assert of_kind(said, "ConfigMap")["data"]["reprieve.yaml"] == text.strip("\n") + "\n"
    assert of_kind(said, "Deployment")["metadata"]["namespace"] == "elsewhere"


def test_a_configuration_that_is_indented_as_a_whole_is_kept(folder):
    text = f"  {CONFIGURATION.replace(chr(10), chr(10) + '  ').rstrip(' ')}"
    said = folder.run("manifests", "--config", configured(folder, text), local=False)

    assert of_kind(said, "ConfigMap")["data"]["reprieve.yaml"] == text


def test_the_configuration_of_a_folder_counts(folder):
    text = f"{CONFIGURATION}backups: {{namespace: other}}\n"
    (folder.path / "reprieve.yaml").write_text(text, encoding="utf-8")

    assert of_kind(folder.run("manifests"), "ConfigMap")["data"]["reprieve.yaml"] == text


def test_without_a_file_the_namespace_is_the_one_that_is_named(folder):
    said = folder.run("manifests", "--namespace", "backups", local=False)

    config = of_kind(said, "ConfigMap")
    assert config["metadata"]["namespace"] == "backups"
    assert yaml.safe_load(config["data"]["reprieve.yaml"])["backups"]["namespace"] == "backups"


def test_without_backups_it_runs_where_it_is_said_and_its_lease_lies_in_default(folder):
    path = configured(folder, f"{CONFIGURATION}backups: false\n")
    said = folder.run("manifests", "--config", path, "--namespace", "guard", local=False)

    assert of_kind(said, "Deployment")["metadata"]["namespace"] == "guard"
    assert of_kind(said, "Role")["metadata"]["namespace"] == "default"
    assert of_kind(said, "RoleBinding")["subjects"][0]["namespace"] == "guard"


def test_what_trackers_carry_has_to_be_named(folder):
    path = configured(folder, FAROS)
    without = folder.run("manifests", "--config", path, local=False)
    named = folder.run("manifests", "--config", path, "--carried", "v1/ConfigMap", local=False)

    assert "no right to what faros.pusher.com/v1alpha1/GitTrackObject carry" in without.err
    assert named.err == ""
    protection = next(each for each in documents(named) if each["metadata"]["name"] == "reprieve-protection")
    assert ["configmaps"] in [rule["resources"] for rule in protection["rules"]]


def test_an_image_is_one_value_whatever_is_in_it(folder):
    image = "registry.example/reprieve@sha256:0 # \n- {a: b}"
    said = folder.run("manifests", "--image", image, local=False)

    (container,) = of_kind(said, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == image


@pytest.mark.parametrize(
    ("arguments", "text", "said"),
    [
        pytest.param(["--secret", "a", "--from-locations"], "", "--secret excludes --from-locations", id="both"),
        pytest.param(["--secret", "No/Name"], "", "no Secret can be called 'No/Name'", id="no-name"),
        pytest.param(["--carried", "v1/ConfigMap"], "", "no entry with dialect: faros", id="nothing-carries"),
        pytest.param(["--carried", "ConfigMap"], FAROS, "is not a kind", id="no-kind"),
        pytest.param(["--namespace", "b"], CONFIGURATION, "the configuration says velero", id="two-namespaces"),
        pytest.param([], f"{CONFIGURATION}# \u202e\n", "line 3: has what cannot be seen", id="unseen"),
        pytest.param([], f"{CONFIGURATION}backups: {{nonsense: 1}}\n", "unknown key nonsense", id="wrong"),
    ],
)
def test_what_cannot_be_is_an_error_and_nothing_is_printed(folder, arguments, text, said):
    config = ["--config", configured(folder, text)] if text else []
    ended = folder.run("manifests", *arguments, *config, local=False)

    assert (ended.code, ended.out) == (1, "")
    assert said in ended.err
