"""Regular files only, and unchanged while they are read."""

import os
import socket

import pytest

from levelhead.support.errors import LevelheadError
from levelhead.support.regular_file import check_regular_file, check_unchanged, unchanged_while_read


def test_a_regular_file_and_a_link_to_it_pass_with_the_same_stamp(tmp_path):
    file, link = tmp_path / "a", tmp_path / "b"
    file.write_text("1")
    link.symlink_to(file)
    assert check_regular_file(file) == check_regular_file(str(link))


def test_pipes_sockets_and_devices_are_refused_without_being_opened(tmp_path, monkeypatch):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(
        LevelheadError, match="pipe: a pipe; expected a regular file that holds counts"
    ):
        check_regular_file(pipe, "counts")
    with pytest.raises(LevelheadError, match="/dev/zero: a device"):
        check_regular_file("/dev/zero")
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("s")
        with pytest.raises(LevelheadError, match="a socket"):
            check_regular_file("s")


def test_folders_absent_files_and_names_that_cannot_be_are_refused(tmp_path):
    for wanted in ("logits", "one that `levelhead tune` wrote"):
        with pytest.raises(IsADirectoryError, match=f"a folder, and no file; expected {wanted}$"):
            check_regular_file(tmp_path, wanted)
    for name in ("none", "none/of/these"):
        with pytest.raises(FileNotFoundError, match="no such file; expected logits"):
            check_regular_file(tmp_path / name, "logits")
    (tmp_path / "file").write_text("")
    with pytest.raises(FileNotFoundError, match="no such file"):
        check_regular_file(tmp_path / "file" / "below")
    with pytest.raises(LevelheadError, match="null"):
        check_regular_file("a\0b")


@pytest.mark.parametrize("how", ["append", "replace", "remove"])
def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, how):
    file = tmp_path / "counts.json"
    file.write_text("[1, 2]")

    def change() -> None:
        if how == "append":
            with file.open("a") as more:
                more.write(" ")
        elif how == "replace":
            (tmp_path / "new").write_text("[2, 1]")
            os.replace(tmp_path / "new", file)
        else:
            file.unlink()

    with (
        pytest.raises(LevelheadError, match="changed while it was read"),
        unchanged_while_read(file),
    ):
        change()


def test_a_file_that_stays_passes(tmp_path):
    file = tmp_path / "a"
    file.write_text("1")
    check_unchanged(file, check_regular_file(file))
