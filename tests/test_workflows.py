"""What CI runs and installs: actions by their commits, packages by their hashes, as a tag or an index may change."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".github"


def test_each_action_is_pinned_by_a_commit_whose_version_stands_beside_it():
    pins: dict[str, set[str]] = {}
    for path in (FOLDER / "workflows").iterdir():
        for line in path.read_text(encoding="utf-8").splitlines():
            if "uses:" not in line or "./.github" in line:
                continue
            match = re.fullmatch(
                r" +- uses: ([\w-]+/[\w-]+)@([0-9a-f]{40})  # v\d+\.\d+\.\d+", line
            )
            assert match is not None, line
            pins.setdefault(match[1], set()).add(match[2])
    assert len(pins) == 5
    assert all(len(commits) == 1 for commits in pins.values())


def test_ci_installs_nothing_but_what_is_locked_by_hash():
    for path in FOLDER.rglob("*.yml"):
        assert not re.search(r"(?i)extra.index|index.url", path.read_text(encoding="utf-8")), path
    for path in (FOLDER / "workflows").iterdir():
        for name, job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].items():
            steps = [step.get("uses", "").partition("@")[0] for step in job["steps"]]
            if "actions/setup-python" in steps:
                after = steps[steps.index("actions/setup-python") + 1]
                assert after == "./.github/actions/locked", name


def test_what_is_locked_is_what_the_constraints_pin():
    for name, pinned in (("locked", "constraints"), ("locked-lowest", "constraints-lowest")):
        locked = versions(FOLDER / f"{name}.txt")
        lines = (ROOT / f"{pinned}.txt").read_text(encoding="utf-8").splitlines()
        pins = {plain(line.split("==")[0]): line.split("==")[1] for line in lines if "==" in line}
        both = locked.keys() & pins.keys()
        assert {
            package: locked[package] for package in both if locked[package] != pins[package]
        } == {}
        assert len(both) > 30
    assert "setuptools" in versions(FOLDER / "locked-build.txt")


def plain(name: str) -> str:
    return name.strip().lower().replace("_", "-").replace(".", "-")


def versions(path: Path) -> dict[str, str]:
    """Return the version of each package of a lock file, after checking that each has a hash."""
    version_of = {}
    for line in path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        if line.startswith("#"):
            continue
        requirement, *hashes = line.split(" --hash=")
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}\s*", digest) for digest in hashes), line
        name, version = requirement.partition(";")[0].split("==")
        version_of[plain(name.partition("[")[0])] = version.strip()
    return version_of
