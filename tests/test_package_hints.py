"""What is said in Python where a library that only some parts need is not installed."""

import subprocess
import sys

import pytest

from levelhead.support.extras import EXTRAS, install_command

CASES = [
    ("torch", "import levelhead as lh; lh.rescale_(object(), [2, 1], gamma=1)"),
    ("keras", "import levelhead.hosts.keras"),
    ("torch", "from levelhead import WVN"),
    ("torch", "from levelhead.hosts.torch import WVN"),
    ("sklearn", "from levelhead.hosts.sklearn import AdjustedClassifier"),
    ("sklearn", "import levelhead.heads.sklearn"),
    ("lightning", "from levelhead.hosts.lightning import WVNCallback"),
    ("transformers", "from levelhead.hosts.transformers import WVNCallback"),
]


@pytest.mark.slow
def test_an_import_that_lacks_a_library_says_what_to_install():
    """One process for all: each case begins with nothing of ours or of the library imported."""
    code = (
        "import sys\n"
        f"for module, line in {CASES!r}:\n"
        "    for name in [n for n in sys.modules if n.split('.')[0] in ('levelhead', module)]:\n"
        "        del sys.modules[name]\n"
        "    sys.modules[module] = None\n"
        "    try:\n        exec(line)\n"
        "    except ModuleNotFoundError as error:\n        print(error)\n"
        "    del sys.modules[module]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        f"this needs {module}: {install_command(EXTRAS[module])}" for module, _ in CASES
    ]


def test_what_to_install_does_not_depend_on_where_the_package_came_from():
    for extra in EXTRAS.values():
        assert install_command(extra).startswith("pip install '")
        assert "levelhead[" not in install_command(extra)
