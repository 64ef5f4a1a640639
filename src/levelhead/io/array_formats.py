"""The formats that arrays of numbers or texts are read from.

Each is a function (file, key, wanted) -> array, which `arrays.read` picks by the file's suffix.

`key` says which array of a file, or which column of a table; None where the caller named none. Then
the only array is taken, or the one called as is `wanted`: logits, labels, counts, names. What comes
back is [N] or [N, K], numbers or texts (dtype kind U); whoever asked checks the shape, as only they
know whether N labels or N x K logits were meant. The messages do not name the file: `arrays.read`
adds that.

A new format is a function and a line in `FORMATS`; if it can hold several arrays, one more in
`ARCHIVES`, so that labels next to the logits are found without reading either.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from ..core.class_labels import SEVERAL_LABELS
from ..core.class_names import listed
from ..support import text
from ..support.errors import LevelheadError, reported_as
from ..support.text import is_decimal_comma, is_number
from .numpy_file import names_in_npz, read_npy, read_npz, read_or_map, text_array
from .safetensors_file import NUMPY_DTYPES, read_header, widen_bfloat16
from .table import TABLE_SUFFIXES, Table
from .table_columns import find_columns, find_label
from .table_file import read_table
from .torch_file import names_of_tensors, read_tensors


def _read_npy(path: Path, key: str | None, wanted: str) -> np.ndarray:
    _check_no_key(key)
    return read_npy(path)


def _read_npz(path: Path, key: str | None, wanted: str) -> np.ndarray:
    """Return one array of an .npz file, by its name in the archive."""
    return read_npz(path, _choose_array(path, key, names_in_npz(path), wanted))


def _read_safetensors(path: Path, key: str | None, wanted: str) -> np.ndarray:
    """Return a tensor; bfloat16, which numpy does not have, is widened to float32.

    The numbers are read where the header says they lie, and not by the format's library, so that
    large ones are mapped.
    """
    tensors = read_header(path).tensors
    name = _choose_array(path, key, list(tensors), wanted)
    tensor = tensors[name]
    if tensor.dtype not in NUMPY_DTYPES:
        raise LevelheadError(
            f"{name!r} is {tensor.dtype}; expected floating-point or integer numbers"
        )
    if 0 in tensor.shape:
        raise LevelheadError(f"{name!r} is empty, shape {list(tensor.shape)}")
    values = read_or_map(path, NUMPY_DTYPES[tensor.dtype], tensor.offset, tensor.shape)
    if tensor.dtype == "BF16":
        return widen_bfloat16(values)
    return values


def _read_table(path: Path, key: str | None, wanted: str) -> np.ndarray:
    """Return a column of a table, its columns of logits, or all of them.

    In this order: the column that the caller named; the only column there is; of a table of
    predictions, the labels or the logits, whichever is wanted; else all columns, as for the cost of
    confusing classes, [K, K]. A column of lists (.parquet) comes as [N, K].
    """
    table = read_table(path, titles=(wanted, key))
    if key is not None:
        values = table.column(key)
    elif len(table.columns) == 1:  # labels, or lists of logits
        values = table.at(0)
    elif wanted == "labels":
        values = _label_column(table, path)
    elif wanted == "logits":
        return table.numbers(find_columns(table).logits)
    else:
        return table.numbers(range(len(table.columns)))
    if values.dtype.kind in "iufb":
        return values
    return _check_text(values, wanted)


def _label_column(table: Table, path: Path) -> np.ndarray:
    """Return the column of a table that is titled as labels are.

    Raises:
        LevelheadError: none is. The message lists the titles; without titles, one of the columns
            may be the index that pandas writes. Columns of 0 and 1 may be several labels per
            sample.
    """
    title = find_label(table)
    if title is None:
        instead = "; save it alone (index=False in pandas)"
        if table.titles:
            instead = f" ({listed(table.titles)}); name it: {path.name}:TITLE"
        if all(np.isin(column, (0, 1)).all() for column in table.columns):
            instead += f"; {SEVERAL_LABELS}"
        raise LevelheadError(f"expected one column of labels, got {len(table.columns)}{instead}")
    return table.column(title)


def _check_text(values: np.ndarray, wanted: str) -> np.ndarray:
    """Return a column of names, checked.

    No cell may be empty, or a number with a decimal comma. A column becomes text as soon as one of
    its cells is no number, so that `1,5` among numbers would else be looked up as the name of a
    class, and be refused with a message about names.
    """
    for at, cell in enumerate(values.tolist()):
        if is_decimal_comma(cell):
            raise LevelheadError(f"data row {at} holds {cell!r}; save decimals with a point")
        if not cell and wanted == "labels":
            instead = "give its label, or leave that sample out of the logits too"
            raise LevelheadError(f"data row {at} is empty; {instead}")
        if not cell:
            raise LevelheadError(f"data row {at} has an empty cell; expected a number")
    return values


def _read_torch(path: Path, key: str | None, wanted: str) -> np.ndarray:
    """Return a tensor that `torch.save` wrote, alone or in a dict or list.

    Without a key, it is the tensor called as is wanted, or the only one with as many axes as that
    has: two for logits, one for labels and counts.
    """
    tensors = read_tensors(path)
    if list(tensors) == [""]:  # a tensor alone
        _check_no_key(key)
        return tensors[""]
    # A dict of torch.save needs no names that we know: {"preds": [N, K], "y": [N]} says enough.
    # A checkpoint may hold other things beside: the only one of its shape is meant.
    if key is None and wanted not in tensors:
        axes = 2 if wanted == "logits" else 1
        shaped = [name for name, values in tensors.items() if values.ndim == axes]
        if len(shaped) == 1:
            key = shaped[0]
    return tensors[_choose_array(path, key, list(tensors), wanted)]


def _read_text(path: Path, key: str | None, wanted: str) -> np.ndarray:
    """Return the rows of numbers of a text file, or its words, one per line.

    Numbers may be separated by blanks or commas. Whether they are numbers is told from all of them:
    if a single word is none, or a row is longer than another, each line is one text. Columns have
    no titles here; a file that has some is a .csv file.
    """
    _check_no_key(key)
    lines = [line.strip() for line in text.read(path).splitlines()]
    rows = [line.replace(",", " ").split() for line in lines if line]
    # Every word is looked at, since `cat` in the last line makes all lines names.
    are_numbers = all(is_number(word) for row in rows for word in row)
    if are_numbers and len({len(row) for row in rows}) == 1:
        values = np.array(rows, dtype=np.float64)
        if values.shape[1] == 1:
            return values[:, 0]
        if len(rows) == 1 and wanted != "logits":  # all labels or counts on one line
            return values[0]
        return values
    return _check_text(text_array([line for line in lines if line]), wanted)


def _read_json(path: Path, key: str | None, wanted: str) -> np.ndarray:
    """Return a JSON list as an array, or the one under a key of an object.

    Lists of lists become [N, K]; of unequal length they are refused, which numpy says as a
    ValueError.
    """
    value = text.parse_json(text.read(path))
    if isinstance(value, Mapping):
        value = value[_choose_array(path, key, list(value), wanted)]
    else:
        _check_no_key(key)
    # In an array each text takes as much room as the longest; `text_array` refuses far too much.
    leaves = _leaves(value)
    if any(isinstance(leaf, str) for leaf in leaves):
        text_array([str(leaf) for leaf in leaves])
    with reported_as("expected rows of one length", ValueError, OverflowError):
        values = np.array(value)
    if not isinstance(value, list) or values.dtype.kind not in "iufbU":
        raise LevelheadError(f"expected a list of {wanted}")
    return values


def _leaves(value: object) -> list[object]:
    """Return what lists of lists hold in the end.

    It goes level by level: a file may nest them deeper than Python's stack.

    >>> _leaves([1, [2, ["cat"]]])
    [1, 2, 'cat']
    """
    leaves = [value]
    while any(isinstance(item, list) for item in leaves):
        below = []
        for item in leaves:
            if isinstance(item, list):
                below += item
            else:
                below.append(item)
        leaves = below
    return leaves


def _check_no_key(key: str | None) -> None:
    if key is not None:
        raise LevelheadError(f"the file holds one array without a key; leave out :{key}")


def _choose_array(path: Path, key: str | None, names: Sequence[str], wanted: str) -> str:
    """Return the name of the array that is meant, of those in a file.

    The key comes first; without one it is the only array, else the one called as is wanted. Where
    neither tells, the names are listed for the user to choose: to take the first would be a guess.
    """
    if key is not None and key not in names:
        raise LevelheadError(f"no array {key!r}; the file has {listed(names) or 'none'}")
    if key is None and len(names) != 1 and wanted not in names:
        got = f"got {listed(names) or 'none'}; name it: {path.name}:KEY"
        raise LevelheadError(f"expected one array, or one called {wanted!r}, {got}")
    if key is not None:
        return key
    if len(names) == 1:
        return names[0]
    return wanted


def _names_in_safetensors(path: Path) -> Collection[str]:
    return read_header(path).tensors


FORMATS: dict[str, Callable[[Path, str | None, str], np.ndarray]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".safetensors": _read_safetensors,
    **dict.fromkeys(TABLE_SUFFIXES, _read_table),
    ".pt": _read_torch,
    ".pth": _read_torch,
    ".txt": _read_text,
    ".json": _read_json,
}
# Formats that hold several arrays, and how to ask for their names without reading a number.
ARCHIVES: dict[str, Callable[[Path], Collection[str]]] = {
    ".npz": names_in_npz,
    ".safetensors": _names_in_safetensors,
    ".pt": names_of_tensors,
    ".pth": names_of_tensors,
}
