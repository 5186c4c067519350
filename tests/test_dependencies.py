"""What the packages import is declared, and what is declared is imported."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions, version

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


EXTRAS = ("ray", "tensorboard", "trackio", "mteb")  # imported where they are asked for


def imported(package: str) -> set[str]:
    """The top-level modules of other projects that a package of ours imports, at any place in its files."""
    modules = set()
    for path in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                modules.add(str(node.module))
    return {module.split(".")[0] for module in modules} - sys.stdlib_module_names - {"training", "sbert_app"}


def by_name(requirements: list[str]) -> dict[str, Requirement]:
    return {canonicalize_name(line.name): line for line in map(Requirement, requirements)}


def in_file(name: str) -> dict[str, Requirement]:
    """The requirements in a file, without its comments and the files that it includes."""
    lines = (re.sub(r"\s*#.*", "", line).strip() for line in (ROOT / name).read_text().splitlines())
    return by_name([line for line in lines if line and not line.startswith("-r")])


def test_what_is_imported_is_declared_and_the_other_way_round():
    distributions = packages_distributions()
    modules = imported("training") | imported("sbert_app")
    needed = {canonicalize_name(distributions[module][0]) for module in modules}
    optional = {name for extra in EXTRAS for name in by_name(PROJECT["optional-dependencies"][extra])}
    assert needed - optional == set(by_name(PROJECT["dependencies"]))


def test_the_tested_set_lies_within_the_declared_ranges():
    declared, tested = by_name(PROJECT["dependencies"]), in_file("requirements.txt")
    assert set(tested) == set(declared)
    for name, requirement in declared.items():
        assert version(name) in requirement.specifier, f"{name} {version(name)} is outside of {requirement}"
        assert version(name) in tested[name].specifier, f"{name} {version(name)} is outside of requirements.txt"


def test_the_extra_dev_is_requirements_dev():
    extra, file = by_name(PROJECT["optional-dependencies"]["dev"]), in_file("requirements-dev.txt")
    assert {name: str(one.specifier) for name, one in extra.items()} == {
        name: str(one.specifier) for name, one in file.items()
    }


def test_the_lock_file_satisfies_every_requirement():
    locked = in_file("requirements.lock")
    for requirement in [*in_file("requirements.txt").values(), *in_file("requirements-dev.txt").values()]:
        [pin] = locked[canonicalize_name(requirement.name)].specifier
        assert pin.operator == "=="
        assert pin.version in requirement.specifier


def test_every_requirement_says_why():
    for name in ("requirements.txt", "requirements-dev.txt"):
        for line in (ROOT / name).read_text().splitlines():
            package = line.split("#")[0].strip()
            if package and not package.startswith("-r"):
                assert re.search(r"\s# \w.+", line), f"{name}: {package} without a reason"
