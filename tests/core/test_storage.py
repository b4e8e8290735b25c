"""Files that are whole or refused, and writing that leaves the last good file alone."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from example_data import little_memory
from keyhole.core.storage import MAGIC, VERSION, read_container, replacing, write_container
from keyhole.errors import PlanError, StorageError

ARRAYS = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([True, False])}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "thing.keyhole"


def sealed(path: Path, *, magic=MAGIC, version=VERSION, header=b'{"kind": "plan"}', body=None, length=None) -> Path:
    """A file whose SHA-256 is right, whatever else is wrong."""
    body = save({"a": np.zeros(2)}) if body is None else body
    content = struct.pack("<8sIQ", magic, version, len(header) if length is None else length) + header + body
    path.write_bytes(content + hashlib.sha256(content).digest())
    return path


def folder_of(path: Path) -> list[str]:
    return sorted(p.name for p in path.parent.iterdir())


def test_what_is_written_is_read(path):
    header = {"kind": "plan", "numbers": [1, 2.5, None], "nothing": float("nan"), "word": "Übergröße"}
    write_container(path, header, ARRAYS)
    found, arrays = read_container(path, "plan")
    assert found.pop("format") == VERSION
    assert json.dumps(found, sort_keys=True) == json.dumps(header, sort_keys=True)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype


def test_arrays_in_any_order_of_memory_are_written_as_they_are(path, rng):
    values = rng.normal(size=(4, 6))
    arrays = {
        "fortran": np.asfortranarray(values),
        "strided": values[::2, ::-1],
        "turned": values.T,
        "single": np.array(2.5),
    }
    write_container(path, {"kind": "plan"}, arrays)
    for name, array in read_container(path, "plan")[1].items():
        np.testing.assert_array_equal(array, arrays[name])
        assert array.shape == arrays[name].shape


def test_the_file_is_what_the_format_says(path):
    """Magic, version, header length, JSON, safetensors, SHA-256: readable without Keyhole."""
    write_container(path, {"kind": "plan"}, ARRAYS)
    content = path.read_bytes()
    magic, version, length = struct.unpack_from("<8sIQ", content)
    assert (magic, version) == (b"KEYHOLE\x00", 4)
    assert json.loads(content[20 : 20 + length]) == {"kind": "plan"}
    assert content[-32:] == hashlib.sha256(content[:-32]).digest()


STRANGE = struct.pack("<Q", 56) + b'{"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}} ' + bytes(2)
REFUSED = {
    "future": ({"version": VERSION + 1}, "format 5.*install a newer Keyhole"),
    "version 0": ({"version": 0}, "damaged or cut short"),
    "foreign": ({"magic": b"GIF89a\x00\x00"}, "not a Keyhole file"),
    "header too long": ({"length": 10**15}, "header does not fit"),
    "header not JSON": ({"header": b"kind: plan"}, "not a whole Keyhole file"),
    "header not text": ({"header": b"\xff\xfe\x00"}, "not a whole Keyhole file"),
    "header too deep": ({"header": b"[" * 100_000}, "not a whole Keyhole file"),
    "header not a mapping": ({"header": b"[1]"}, "without a kind"),
    "another kind": ({"header": b'{"kind": "checkpoint"}'}, "holds a checkpoint, not a plan"),
    "arrays not safetensors": ({"body": b"\x80\x04pickle"}, "not a whole Keyhole file"),
    "arrays of a strange type": ({"body": STRANGE}, "not a whole Keyhole file"),
}


@pytest.mark.parametrize(("wrong", "says"), REFUSED.values(), ids=REFUSED)
def test_a_sealed_file_of_the_wrong_sort_is_refused(path, wrong, says):
    with pytest.raises(PlanError, match=f"{path}.*{says}"):
        read_container(sealed(path, **wrong), "plan")


FRONTS = {
    "foreign": (b"PK\x03\x04", "not a Keyhole file"),
    "future": (struct.pack("<8sIQ", MAGIC, VERSION + 1, 10), "install a newer Keyhole"),
    "version 0": (struct.pack("<8sIQ", MAGIC, 0, 10), "damaged or cut short"),
    "header too long": (struct.pack("<8sIQ", MAGIC, VERSION, 9 << 30), "header does not fit"),
    "header one byte too long": (struct.pack("<8sIQ", MAGIC, VERSION, (8 << 30) - 20 - 32 + 1), "header does not fit"),
}


@pytest.mark.parametrize(("front", "says"), FRONTS.values(), ids=FRONTS)
def test_a_huge_file_is_refused_by_its_first_bytes(path, front, says):
    """8 GiB, of which the disk holds next to nothing."""
    path.write_bytes(front)
    os.truncate(path, 8 << 30)
    with little_memory(), pytest.raises(PlanError, match=f"{path}.*{says}"):
        read_container(path, "plan")


@pytest.mark.parametrize("length", [1 << 30, 10**15, 2**64 - 1])
def test_a_header_that_declares_too_much_takes_no_memory(path, length):
    with little_memory(), pytest.raises(PlanError, match="header does not fit"):
        read_container(sealed(path, length=length), "plan")


def test_arrays_that_declare_too_much_take_no_memory(path):
    says = b'{"a":{"dtype":"F64","shape":[1000000,1000000],"data_offsets":[0,8000000000000]}}'
    with little_memory(), pytest.raises(PlanError, match="not a whole Keyhole file"):
        read_container(sealed(path, body=struct.pack("<Q", len(says)) + says + bytes(8)), "plan")


def test_an_empty_file_is_refused(path):
    path.touch()
    with pytest.raises(PlanError, match=f"{path}: the file is empty"):
        read_container(path, "plan")


@given(content=st.binary(max_size=200))
def test_any_other_bytes_are_refused(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "noise.keyhole"
    path.write_bytes(content)
    with pytest.raises(PlanError, match=r"noise.keyhole"):
        read_container(path, "plan")


@pytest.mark.parametrize("where", ["missing.keyhole", "missing/thing.keyhole", "."])
def test_a_file_that_cannot_be_read_is_a_storage_error(tmp_path, where):
    with pytest.raises(StorageError, match=r"cannot be read: (No such file|Is a directory)"):
        read_container(tmp_path / where, "plan")


def test_a_pipe_is_refused_before_it_blocks(path):
    os.mkfifo(path)
    with pytest.raises(StorageError, match=f"{path}: is a named pipe, not a regular file"):
        read_container(path, "plan")


def test_writing_replaces_the_old_file_and_leaves_nothing_else(path):
    write_container(path, {"kind": "plan", "n": 1}, ARRAYS)
    write_container(path, {"kind": "plan", "n": 2}, ARRAYS)
    assert read_container(path, "plan")[0]["n"] == 2
    assert folder_of(path) == [path.name]


def test_the_file_has_the_permissions_that_the_user_gives_new_files(path):
    before = os.umask(0o027)
    try:
        write_container(path, {"kind": "plan"}, ARRAYS)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o444])
def test_a_file_that_is_replaced_keeps_its_permissions(path, mode):
    path.touch()
    path.chmod(mode)
    write_container(path, {"kind": "plan"}, ARRAYS)
    assert path.stat().st_mode & 0o7777 == mode


def test_a_new_file_is_closed_to_others_while_it_is_written(path):
    """What will be readable to its owner alone is never readable to others, not even unfinished."""
    path.touch()
    path.chmod(0o600)
    with replacing(path) as file:
        assert os.fstat(file.fileno()).st_mode & 0o777 == 0o600
        file.write(b"new")


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path, exists):
    """Through a link to a link in another folder, whether the file at the end exists or not."""
    for name in ("kept", "links"):
        (tmp_path / name).mkdir()
    target, middle, link = tmp_path / "kept" / "plan", tmp_path / "links" / "middle", tmp_path / "plan.keyhole"
    middle.symlink_to(Path("..") / "kept" / "plan")
    link.symlink_to(middle)
    if exists:
        target.write_bytes(b"old")
        target.chmod(0o600)
    write_container(link, {"kind": "plan", "n": 1}, ARRAYS)
    assert link.is_symlink()
    assert middle.is_symlink()
    assert not target.is_symlink()
    assert read_container(target, "plan")[0]["n"] == 1
    assert not exists or target.stat().st_mode & 0o777 == 0o600
    assert folder_of(target) == [target.name]


def test_a_link_to_itself_is_refused_and_stays(path):
    path.symlink_to(path)
    with pytest.raises(StorageError, match=f"{path}: is a symbolic link that leads back to itself"):
        write_container(path, {"kind": "plan"}, ARRAYS)
    assert path.is_symlink()


def test_a_link_to_what_is_no_file_is_refused(path):
    path.symlink_to("/dev/null")
    with pytest.raises(StorageError, match=f"{path}: cannot be written: it is not a file"):
        write_container(path, {"kind": "plan"}, ARRAYS)


@pytest.mark.parametrize("call", ["fsync", "write", "replace"])
def test_a_full_disk_leaves_the_last_good_file(path, monkeypatch, call):
    write_container(path, {"kind": "plan", "n": 1}, ARRAYS)
    good = path.read_bytes()

    def full(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if call == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    elif call == "replace":
        monkeypatch.setattr(Path, "replace", full)

    def write() -> None:
        with replacing(path) as file:
            file.write(b"new")
            if call == "write":
                full()

    with pytest.raises(StorageError, match=f"{path}: cannot be written: No space left on device"):
        write()
    assert path.read_bytes() == good
    assert folder_of(path) == [path.name]


def test_a_disk_that_fills_up_for_real_leaves_the_last_good_file(path):
    """The kernel refuses to let the file grow beyond a limit, as it does on a full disk."""
    write_container(path, {"kind": "plan", "n": 1}, ARRAYS)
    good = path.read_bytes()
    script = """
        import resource, signal, sys
        from pathlib import Path
        import numpy as np
        from keyhole.errors import StorageError
        from keyhole.core.storage import write_container
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            write_container(Path(sys.argv[1]), {"kind": "plan"}, {"a": np.zeros(100_000)})
        except StorageError as error:
            sys.stdout.write(str(error))
    """
    run = [sys.executable, "-c", textwrap.dedent(script), str(path)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.stdout == f"{path}: cannot be written: File too large", done.stderr
    assert path.read_bytes() == good
    assert folder_of(path) == [path.name]


def test_an_error_while_writing_is_passed_on_and_leaves_the_last_good_file(path):
    path.write_bytes(b"good")

    def write() -> None:
        with replacing(path) as file:
            file.write(b"bad")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert path.read_bytes() == b"good"
    assert folder_of(path) == [path.name]


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(StorageError, match=r"missing/thing.keyhole: cannot be written: No such file"):
        write_container(tmp_path / "missing" / "thing.keyhole", {}, {})


def test_a_file_cannot_be_a_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"file/thing.keyhole: cannot be written: Not a directory"):
        write_container(tmp_path / "file" / "thing.keyhole", {}, {})


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_file_is_not_replaced(path, kind):
    """As root, replacing /dev/null by a plan would break the machine."""
    path.mkdir() if kind == "folder" else os.mkfifo(path)
    with pytest.raises(StorageError, match=f"{path}: cannot be written: it is not a file"):
        write_container(path, {"kind": "plan"}, ARRAYS)
    assert not path.is_file()
    assert folder_of(path) == [path.name]
