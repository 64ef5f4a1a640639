"""The supply chain: versions pinned, the build's too, a reason for each dependency, and a bill of materials.

    python -m bench.trust.supply_chain [--sbom FILE]

ends with 1 and lists what is wrong; `make check` runs it.

Seen to fail: with a line of constraints.txt loosened to `>=`, and before the table of reasons was written.
"""

import argparse
import json
import re
import sys
import tomllib
from importlib.metadata import Distribution, distributions
from pathlib import Path

from .board import Budget, Found, Row

ROOT = Path(__file__).parents[2]
# What builds the wheel: pip gets it into an environment of its own, which only PIP_CONSTRAINT reaches.
BUILD = (
    "hatchling",
    "packaging",
    "pathspec",
    "pluggy",
    "trove-classifiers",
)
# This package, and what comes with Python's venv.
NOT_PINNED = {
    "levelhead",
    "pip",
    "setuptools",
    "wheel",
}
HASHES = (
    "no hashes where `make` installs: as soon as one requirement has a hash, pip demands one of all, which the "
    "editable install cannot have. CI installs only what `.github/locked.txt` has, by its hashes"
)


def canonical(name: str) -> str:
    """Return a package's name as indexes spell it.

    >>> canonical("Typing_Extensions")
    'typing-extensions'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(path: Path = ROOT / "constraints.txt") -> tuple[dict[str, str], list[str]]:
    """Return {package: version} of the constraints, and the lines that do not pin one version."""
    pinned, loose = {}, []
    for line in path.read_text(encoding="utf-8").splitlines():
        text = line.partition("#")[0].strip()
        if not text:
            continue
        match = re.fullmatch(r"([\w.-]+)==([\w.+!-]+)( *;.*)?", text)
        if match:
            pinned[canonical(match[1])] = match[2]
        else:
            loose.append(text)
    return pinned, loose


def dependencies(path: Path = ROOT / "pyproject.toml") -> set[str]:
    """Return the packages that pyproject.toml names, for use, for its extras and for the build."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    extras = [
        requirement
        for group in table["project"]["optional-dependencies"].values()
        for requirement in group
    ]
    words = [*table["project"]["dependencies"], *extras, *table["build-system"]["requires"]]
    names = {canonical(re.split(r"[\[<>=!;~ ]", word)[0]) for word in words}
    return names - {"levelhead"}


def reasons(path: Path = ROOT / "CONTRIBUTING.md") -> set[str]:
    """Return the packages that the table of dependencies gives a reason for."""
    part = path.read_text(encoding="utf-8").partition("## Dependencies")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|", part, re.MULTILINE)
    return {
        canonical(name)
        for names, why in rows
        if why.strip()
        for name in re.findall(r"`([\w.-]+)`", names)
    }


def installed(names: set[str]) -> dict[str, str]:
    """Return {package: version} of these packages and of all that they require, as far as it is installed here.

    >>> sorted(installed({"jinja2"}))
    ['jinja2', 'markupsafe']
    """
    here = {canonical(one.name): one for one in distributions()}
    versions, waiting = {}, sorted(names)
    while waiting:
        name = waiting.pop()
        if name in here and name not in versions:
            versions[name] = here[name].version
            needed = [one for one in here[name].requires or [] if "extra ==" not in one]
            waiting += [canonical(re.split(r"[^\w.-]", one)[0]) for one in needed]
    return versions


def bill_of_materials() -> dict[str, object]:
    """Return what is installed here, as CycloneDX writes it."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "library", "name": "levelhead"}},
        "components": [
            {
                "type": "library",
                "name": canonical(package.name),
                "version": package.version,
                "purl": f"pkg:pypi/{canonical(package.name)}@{package.version}",
                **(
                    {"licenses": [{"license": {"name": text}}]}
                    if (text := _license(package))
                    else {}
                ),
            }
            for package in sorted(distributions(), key=lambda package: canonical(package.name))
        ],
    }


def _license(package: Distribution) -> str:
    """Return the license that a package states, in one line; some put the whole text there."""
    text = package.metadata.get("License-Expression") or package.metadata.get("License") or ""
    return text.strip().splitlines()[0][:100] if text.strip() else ""


def problems() -> list[str]:
    """Return what is wrong, one line each."""
    pinned, loose = pins()
    lines = [f"constraints.txt: {line!r} does not pin one version" for line in loose]
    lines += [
        f"constraints.txt: {name}, which builds the wheel, is not pinned"
        for name in BUILD
        if name not in pinned
    ]
    for name, version in sorted(installed(dependencies()).items()):
        # Without the build, such as +cpu of torch.
        here = version.partition("+")[0]
        if name in NOT_PINNED:
            continue
        if name not in pinned:
            lines.append(f"constraints.txt: {name} {here} is installed and not pinned")
        elif pinned[name].partition("+")[0] != here:
            lines.append(
                f"constraints.txt: {name} is pinned to {pinned[name]}, and {here} is installed"
            )
    missing = sorted(dependencies() - reasons())
    lines += [f"CONTRIBUTING.md: no reason is given for {name}" for name in missing]
    if "PIP_CONSTRAINT" not in (ROOT / "Makefile").read_text(encoding="utf-8"):
        lines.append("Makefile: the build does not get the constraints")
    return lines


def check(budget: Budget) -> Found:
    """Check all of it: it takes a second."""
    pinned, _ = pins()
    done = {
        "versions pinned": len(pinned),
        "dependencies with a reason": len(dependencies() & reasons()),
    }
    done["components in the bill of materials"] = len(bill_of_materials()["components"])  # type: ignore[arg-type]
    return Found(done, problems(), HASHES)


ROW = Row(
    "supply chain",
    "every version pinned, the build's too; a reason for each dependency; a bill of materials (CycloneDX)",
    "in `make check`; hashes where the installer can hold them",
    check,
)


def main() -> int:
    """Print what is wrong; write the bill of materials if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sbom", type=Path)
    options = parser.parse_args()
    if options.sbom is not None:
        options.sbom.write_text(json.dumps(bill_of_materials(), indent=1) + "\n", encoding="utf-8")
    lines = problems()
    print("\n".join(lines) or "the supply chain is in order")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
