"""What the packages import is declared, and what is declared is imported."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, version

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


OPTIONAL = PROJECT["optional-dependencies"]
EXTRAS = ("ray", "tensorboard", "trackio", "mteb", "desktop")  # imported where they are asked for


def imported(package: str) -> set[str]:
    """The top-level modules of other projects that a package of ours imports, at any place in its files."""
    modules = set()
    for path in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                modules.add(str(node.module))
    return (
        {module.split(".")[0] for module in modules}
        - sys.stdlib_module_names
        - {"training", "sbert_app"}
    )


def by_name(requirements: list[str]) -> dict[str, Requirement]:
    return {canonicalize_name(line.name): line for line in map(Requirement, requirements)}


def in_file(name: str) -> dict[str, Requirement]:
    """The requirements in a file, without its comments and the files that it includes."""
    lines = (re.sub(r"\s*#.*", "", line).strip() for line in (ROOT / name).read_text().splitlines())
    return by_name([line for line in lines if line and not line.startswith("-r")])


def declared() -> dict[str, Requirement]:
    """What the core, the pages and the maps need: an installation with the extra `app`."""
    found = by_name([*PROJECT["dependencies"], *OPTIONAL["app"], *OPTIONAL["maps"]])
    del found["sbert-lab"]  # an extra that contains another
    return found


def test_the_command_line_starts_without_any_extra():
    code = (
        "import sys; from sbert_app.process import EXTRA_OF; sys.modules |= dict.fromkeys(EXTRA_OF);"
        "import sbert_app.cli"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_each_extra_is_named_for_the_modules_that_it_brings():
    from sbert_app.process import EXTRA_OF

    distributions = packages_distributions()
    absent = {"webview": "pywebview", "trackio": "trackio"}  # which the tests do not need
    for module, extra in EXTRA_OF.items():
        package = absent.get(module) or canonicalize_name(distributions[module][0])
        assert package in by_name(OPTIONAL[extra]), f"the extra {extra} does not bring {module}"
    brought = set(by_name(OPTIONAL["app"] + OPTIONAL["maps"])) - {"sbert-lab"}
    assert brought == {
        canonicalize_name(distributions[m][0])
        for m, extra in EXTRA_OF.items()
        if extra in ("app", "maps")
    }


def test_what_is_imported_is_declared_and_the_other_way_round():
    distributions = packages_distributions()
    modules = (imported("training") | imported("sbert_app")) - {"webview"}
    needed = {canonicalize_name(distributions[module][0]) for module in modules}
    # The extra desktop, which the tests do not need, and a program that is run, not imported.
    needed |= {"pywebview", "pip"}
    optional = {name for extra in EXTRAS for name in by_name(OPTIONAL[extra])}
    assert needed - optional == set(declared())


def test_the_tested_set_lies_within_the_declared_ranges():
    tested = in_file("requirements.txt")
    assert set(tested) == set(declared())
    for name, requirement in declared().items():
        assert version(name) in requirement.specifier, (
            f"{name} {version(name)} is outside of {requirement}"
        )
        assert version(name) in tested[name].specifier, (
            f"{name} {version(name)} is outside of requirements.txt"
        )


def test_the_lock_file_satisfies_every_requirement():
    """And the extra dev is requirements-dev.txt."""
    locked = in_file("requirements.lock")
    dev = in_file("requirements-dev.txt")
    assert by_name(OPTIONAL["dev"]) == dev
    for requirement in [*in_file("requirements.txt").values(), *dev.values()]:
        if requirement.name == "pip":
            # The program that installs the others.
            continue
        [pin] = locked[canonicalize_name(requirement.name)].specifier
        assert pin.operator == "=="
        assert pin.version in requirement.specifier
