"""Check that the wheel is whole, and that it works where only attrs is installed.

The wheel is built from the sdist, and the sdist from a copy of the tree, so that nothing left over from an earlier
build (`build/`, `*.egg-info`) can get in. It is then installed into an empty environment, without any extra. Checked:

* the wheel holds exactly the files of `core/`, `adapters/` and `entrypoints/`, each room with its `py.typed`;
* attrs is all that it brings;
* every module of core and adapters imports there, or says which extra to install. Inside the command and the controller
  a module may import what its own extra brings; and
* the installed command answers for them: it says which extra to install, without a traceback; and
* with the extra `cli`, and no SDK, the demo runs; and
* with `requirements/image.txt` it has everything: every module imports, and no requirement is missing or in conflict.

Not checked: that the wheel works with the other extras; the tests do that, against the tree.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = str(Path(sys.executable).parent / "uv")
ROOMS = ("core", "adapters", "entrypoints")
OUTSIDE_THE_SDIST = (".*", "__pycache__", "*.py[co]", "build", "dist", "*.egg-info")

IMPORT_EVERY_MODULE = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError as error:
        clear = type(error).__name__ == "MissingExtraError"
        of_an_extra = isinstance(error, ModuleNotFoundError) and not (error.name or "reprieve").startswith("reprieve")
        behind_the_front_door = name.startswith(("reprieve.entrypoints.cli.", "reprieve.entrypoints.controller"))
        if not (clear or (of_an_extra and behind_the_front_door)):
            print(f"{name}: {type(error).__name__}: {error}")
    except BaseException as error:
        print(f"{name}: {type(error).__name__}: {error}")
"""


class BrokenWheelError(Exception):
    """What is wrong with the wheel, one line a finding."""


def main() -> int:
    """Build, look inside, install, import: 0 when all is well, 1 and the findings on standard error when not."""
    with tempfile.TemporaryDirectory(prefix="reprieve-wheel-") as folder:
        try:
            check(Path(folder))
        except BrokenWheelError as error:
            print(f"the wheel is broken:\n{error}", file=sys.stderr)
            return 1
    return 0


def check(scratch: Path) -> None:
    """Run every check on a wheel built in the empty folder `scratch`; raise BrokenWheelError when one fails."""
    wheel = build(scratch)
    check_files(wheel)
    alone = install(str(wheel), scratch / "alone")
    check_requirements(alone)
    check_imports(alone)
    check_front_door(alone)
    check_demo(install(f"{wheel}[cli]", scratch / "cli"))
    check_image(wheel, scratch / "image")
    print(
        f"{wheel.name}: {len(files_of_the_tree())} files, as in the tree; works with attrs, with cli, and in the image"
    )


def build(scratch: Path) -> Path:
    """Build sdist and wheel from a copy of the tree, with the build backend of this environment."""
    tree = scratch / "tree"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*OUTSIDE_THE_SDIST))
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(scratch / "dist"), str(tree))
    (wheel,) = (scratch / "dist").glob("*.whl")
    return wheel


def check_files(wheel: Path) -> None:
    """Compare what the wheel holds, its metadata apart, with what the tree holds."""
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    tree = files_of_the_tree()
    typed = {f"reprieve/{room}/py.typed" for room in ROOMS}
    refuse_if(
        *(
            f"{name}: in the tree, not in the wheel (see packages, package-data in pyproject.toml)"
            for name in tree - packed
        ),
        *(f"{name}: in the wheel, not in the tree" for name in packed - tree),
        *(f"{name}: missing, so type checkers would not see the package's types" for name in typed - packed),
    )


def files_of_the_tree() -> set[str]:
    """Name every file of the three rooms as the wheel should name it."""
    return {f"reprieve/{path.relative_to(ROOT).as_posix()}" for room in ROOMS for path in files_under(ROOT / room)}


def files_under(folder: Path) -> Iterator[Path]:
    """Give the files below `folder`, byte code apart."""
    return (path for path in folder.rglob("*") if path.is_file() and path.parent.name != "__pycache__")


def install(wheel: str, venv: Path) -> Path:
    """Install the wheel into a new environment, the rest at the locked versions; give the environment's scripts."""
    bin_dir = environment(venv)
    pip(bin_dir, "install", "--constraint", str(ROOT / "requirements" / "dev.txt"), wheel)
    return bin_dir


def environment(venv: Path) -> Path:
    """Make an empty environment; give its scripts."""
    run(UV, "venv", "--quiet", "--python", sys.executable, str(venv))
    return venv / "bin"


def pip(bin_dir: Path, command: str, *arguments: str) -> None:
    """Let uv do it in that environment, without the network when it can."""
    line = (UV, "pip", command, "--quiet", "--python", str(bin_dir / "python"), *arguments)
    try:
        run(*line, "--offline")  # what it needs is in uv's cache, unless somebody emptied it
    except BrokenWheelError:
        run(*line)


def check_requirements(bin_dir: Path) -> None:
    """Whoever installs reprieve without an extra gets attrs and nothing else."""
    show = "import importlib.metadata as m; print(*sorted(d.name for d in m.distributions()))"
    installed = run(str(bin_dir / "python"), "-c", show).split()
    if installed != ["attrs", "reprieve"]:
        refuse_if(f"installs {', '.join(installed)}; only attrs and reprieve itself were expected")


def check_imports(bin_dir: Path) -> None:
    """Import each module by itself into one interpreter that has attrs alone."""
    refuse_if(*run(str(bin_dir / "python"), "-c", IMPORT_EVERY_MODULE, *modules()).splitlines())


def modules() -> list[str]:
    """Name every module of the wheel that can be imported."""
    return sorted(name for name in map(module_of, files_of_the_tree()) if name)


def module_of(file: str) -> str:
    """Name the module in a file of the wheel; "" when it holds none, or one that runs when it is imported."""
    path = Path(file)
    if path.suffix != ".py" or path.stem == "__main__":
        return ""
    return ".".join(path.parent.parts if path.stem == "__init__" else path.with_suffix("").parts)


def check_front_door(bin_dir: Path) -> None:
    """Without the extra `cli`, the command names it and ends with exit code 1."""
    for command in ("reprieve", "kubectl-reprieve"):
        ended = subprocess.run([bin_dir / command, "--help"], capture_output=True, text=True, check=False, env=clean())
        if ended.returncode != 1 or "the extra cli" not in ended.stderr or "Traceback" in ended.stderr:
            refuse_if(
                f"`{command} --help` with attrs alone should end with 1 and name the extra cli;"
                f" it ended with {ended.returncode}: {(ended.stderr or ended.stdout).strip()}"
            )


def check_demo(bin_dir: Path) -> None:
    """The demo needs the extra `cli` alone: nothing on its way loads an SDK."""
    run(str(bin_dir / "reprieve"), "demo")


def check_image(wheel: Path, venv: Path) -> None:
    """What the image is built of, by hash and by nothing else, is all that the wheel needs."""
    bin_dir = environment(venv)
    pip(bin_dir, "install", "--require-hashes", "--requirement", str(ROOT / "requirements" / "image.txt"))
    pip(bin_dir, "install", "--no-index", "--no-deps", str(wheel))
    pip(bin_dir, "check")
    run(str(bin_dir / "python"), "-c", f"import {', '.join(modules())}")


def run(*command: str) -> str:
    """Give what the command printed; a command that fails breaks the wheel, with all that it said."""
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=clean(), cwd=tempfile.gettempdir())
    if ended.returncode:
        refuse_if(f"{' '.join(command)} ended with {ended.returncode}:", ended.stdout, ended.stderr)
    return ended.stdout


def clean() -> dict[str, str]:
    """Give the environment without what would let an interpreter see this tree."""
    leaking = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    return {name: value for name, value in os.environ.items() if name not in leaking}


def refuse_if(*findings: str) -> None:
    """Raise BrokenWheelError when there are findings."""
    if findings:
        raise BrokenWheelError("\n".join(sorted(findings)))


if __name__ == "__main__":
    sys.exit(main())
