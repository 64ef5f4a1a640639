"""Libraries that only some parts need, and what to type where one is missing.

The study, `levelhead_lab`, is a package above this one, and may be missing as well:
`from_the_study` is the only way from here to there.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

# What installs each module: an extra of the same name, or another.
_SAME = (
    "torch",
    "sklearn",
    "onnx",
    "lightning",
    "transformers",
    "keras",
    "ray",
    "dask",
    "tensorboard",
    "mlflow",
    "wandb",
)
EXTRAS = {"matplotlib": "plot", "pyarrow": "parquet", "PIL": "images", "pyspark": "spark"} | dict(
    zip(_SAME, _SAME, strict=True)
)


def install_command(extra: str) -> str:
    """Return what to type to install what an extra needs.

    It names the libraries themselves: that works however levelhead itself was installed.

    Args:
        extra: as pyproject.toml names it, such as "torch" or "parquet".

    Returns:
        A command of pip; with the name of the extra where the package has no metadata to read.
    """
    from importlib.metadata import PackageNotFoundError, requires  # here, as it is slow to import

    requirements: list[str] = []
    with suppress(PackageNotFoundError):
        requirements = requires("levelhead") or []
    # Each is such as: torch>=2.6; extra == "torch"
    mark = re.compile(rf"extra *== *['\"]{re.escape(extra)}['\"]")
    wanted = []
    for requirement in requirements:
        library, _, condition = requirement.partition(";")
        if mark.search(condition):
            wanted.append(library.strip())
    if not wanted:
        wanted = [f"levelhead[{extra}]"]
    return "pip install " + " ".join(f"'{library}'" for library in wanted)


@contextmanager
def naming_what_is_missing(what: str = "this") -> Iterator[None]:
    """Give an import of a library that is not installed a message that says how to install it.

    Args:
        what: needs the library, to begin the message with.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        message = message_for_missing(error, what)
        if message is None:
            raise
        raise ModuleNotFoundError(message, name=error.name) from None


def message_for_missing(error: ModuleNotFoundError, what: str = "this") -> str | None:
    """Return what to print about a library that is not installed; None where no extra installs it.

    Args:
        error: of the import; its `name` is that of the module, which may be inside a package.
        what: needs the library.
    """
    # `import keras.src` fails by the name keras.src, but keras is what is missing.
    module = (error.name or "").partition(".")[0]
    if module in EXTRAS:
        return f"{what} needs {module}: {install_command(EXTRAS[module])}"
    return None


def has_the_study() -> bool:
    """Return whether `levelhead_lab` is installed, the package above this one that trains.

    It is not imported to know.
    """
    return find_spec("levelhead_lab") is not None


def from_the_study(name: str, *, needed_by: str = "this") -> Any:
    """Return a function or a module of `levelhead_lab`, when it is needed.

    Args:
        name: "module:function" or "module".
        needed_by: what needs it, for the message if `levelhead_lab` is not installed.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    if not has_the_study():
        reason = f"{needed_by} needs levelhead_lab, which is not installed; levelhead alone does not train"
        raise ModuleNotFoundError(reason, name="levelhead_lab")
    module, _, function = name.partition(":")
    home = import_module(f"levelhead_lab.{module}")
    if function:
        return getattr(home, function)
    return home
