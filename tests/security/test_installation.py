"""What is installed is what was resolved, whoever answers for an index."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements"
PIP = (sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "install")
UV = (Path(sys.executable).with_name("uv"), "pip", "install", "--offline", "--no-cache")


def forge(folder, name, version):
    """A wheel that installs well, and is not the one of that name and version."""
    info = f"{name}-{version}.dist-info"
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{name}/__init__.py", "print('forged')\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(
            f"{info}/RECORD", f"{name}/__init__.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n"
        )


@pytest.mark.parametrize(
    ("installer", "file", "name"),
    [
        pytest.param(PIP, "uv.txt", "uv", id="pip-the-installer"),
        pytest.param(UV, "dev.txt", "attrs", id="uv-the-tools"),
        pytest.param(UV, "image.txt", "attrs", id="uv-the-image"),
    ],
)
def test_a_forged_package_of_the_right_name_and_version_is_not_installed(tmp_path, installer, file, name):
    """An index, a mirror or a cache hands out an archive of its own under the name and version that were asked for."""
    line = re.search(rf"^{name}==(\S+) (?:\\\n +--hash=\S+ ?)+", (REQUIREMENTS / file).read_text("utf-8"), re.MULTILINE)
    pinned = tmp_path / "pinned.txt"
    forge(tmp_path, name, line[1])
    command = [*installer, "--no-deps", "--no-index", "--find-links", tmp_path, "--requirement", pinned]

    pinned.write_text(f"{name}=={line[1]}\n", "utf-8")
    subprocess.run([*command, "--target", tmp_path / "careless"], capture_output=True, check=True)
    pinned.write_text(f"{line[0]}\n", "utf-8")
    asked = [*command, "--require-hashes", "--target", tmp_path / "careful"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)

    assert (tmp_path / "careless" / name).exists(), "the attack works where no hash is asked for"
    assert done.returncode != 0
    assert "hash" in done.stderr.lower()
    assert not (tmp_path / "careful" / name).exists()
