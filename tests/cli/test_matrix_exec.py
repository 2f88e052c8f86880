"""``mcore-compat matrix``: real releases through pip, and what can go wrong on the way with a tiny wheel."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

from mcore_compat.cli._app import app
from mcore_compat.errors import ConfigError, EnvironmentMismatch
from mcore_compat.matrix.execute import outside_python_range
from mcore_compat.matrix.overlay import overlay
from mcore_compat.matrix.table import release as row_of
from mcore_compat.matrix.table import releases
from tests.launch import free_port

WHERE = "import megatron; print(list(megatron.__path__)[0])"


def matrix(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mcore_compat", "matrix", *arguments]
    return subprocess.run(command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=False)


def test_command_sees_the_release_first(release: str, tmp_path: Path) -> None:
    done = matrix("exec", release, "--", sys.executable, "-c", WHERE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(overlay(release) / "megatron")


PLAIN = Path(__file__).with_name("plain_megatron.py")
PYTEST = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "that_file.py"]


def run_plain(release: str, *command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    shutil.copy(PLAIN, cwd / "that_file.py")
    done = matrix("exec", release, "--host", "cpu", "--", *command, cwd=cwd, PORT=str(free_port()), OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.releases("0.6.0")
def test_file_of_plain_megatron(release: str, tmp_path: Path) -> None:
    assert "4 passed" in run_plain(release, sys.executable, *PYTEST, cwd=tmp_path).stdout


@pytest.mark.releases("0.19.2")
def test_file_of_plain_megatron_on_two_ranks(release: str, tmp_path: Path) -> None:
    port = f"--master-port={free_port()}"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", port]
    assert run_plain(release, *launcher, *PYTEST, cwd=tmp_path).stdout.count("4 passed") == 2


def test_start_up_imports_nothing_and_runs_what_it_shadows(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('shadowed')")
    program = "import sys; print([name for name in ('torch', 'mcore_compat', 'megatron') if name in sys.modules])"
    command = ["exec", "0.4.0", "--host", "cpu", "--", sys.executable, "-c", program]
    assert matrix(*command, cwd=tmp_path, PYTHONPATH=str(tmp_path)).stdout.endswith("shadowed\n[]\n")


def test_exit_status_and_arguments_are_the_commands(tmp_path: Path) -> None:
    program = "import sys; print(sys.argv[1:]); sys.exit(7)"
    done = matrix("exec", "0.4.0", "--", sys.executable, "-c", program, "--json", "--", "-x", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (7, "['--json', '--', '-x']\n")


def test_pythonpath_of_the_caller_stays(tmp_path: Path) -> None:
    program = "import os; print(os.environ['PYTHONPATH'])"
    done = matrix("exec", "0.4.0", "--", sys.executable, "-c", program, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    first, _, last = done.stdout.strip().split(os.pathsep)
    assert (first, last) == (str(overlay("0.4.0")), str(tmp_path))


@pytest.mark.parametrize(("declared", "noted"), [(">=99", True), (">=3.8", False), (None, False)])
def test_foreign_python_range_is_said(tmp_path: Path, declared: str | None, noted: bool) -> None:
    information = tmp_path / "megatron_core-0.99.0.dist-info"
    information.mkdir()
    header = f"Requires-Python: {declared}\n" if declared else ""
    (information / "METADATA").write_text(f"Name: megatron-core\n{header}")
    expected = f"note: megatron_core-0.99.0 asks for Python >=99, this is {platform.python_version()}"
    assert outside_python_range(tmp_path) == (expected if noted else "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["0.6.7", "--", "true"], "nearest: 0.6.0, 0.7.0"),
        (["latest", "--", "true"], "no release 'latest' in the table"),
        (["0.4.0", "--", "no-such-program"], "cannot run 'no-such-program'"),
        (["0.4.0", "--"], "COMMAND"),
        (["0.4.0", "--host", "tpu", "--", "true"], "'tpu' is not 'cpu'"),
        (["0.4.0"], "COMMAND"),
    ],
)
def test_bad_usage_exits_2(tmp_path: Path, arguments: list[str], said: str) -> None:
    done = matrix("exec", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr


def test_current_directory_with_a_megatron_is_refused(tmp_path: Path) -> None:
    (tmp_path / "megatron" / "core").mkdir(parents=True)
    done = matrix("exec", "0.4.0", "--", "true", cwd=tmp_path)
    assert done.returncode == 4
    assert f"{tmp_path} holds a Megatron of its own" in done.stderr


def test_regular_package_on_the_path_is_refused(tmp_path: Path) -> None:
    package = tmp_path / "other" / "megatron"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    done = matrix("exec", "0.4.0", "--", "true", cwd=tmp_path, PYTHONPATH=str(package.parent))
    assert done.returncode == 4
    assert f"{package} would be imported instead" in done.stderr


def test_list_names_every_release() -> None:
    result = CliRunner().invoke(app, ["matrix", "list", "--json"])
    assert [row["version"] for row in json.loads(result.stdout)["releases"]] == [row.version for row in releases()]
    assert "0.19.2" in CliRunner().invoke(app, ["matrix", "list"]).stdout


def test_table_is_in_order_and_complete() -> None:
    rows = releases()
    assert rows[0].version == "0.4.0"
    assert len({row.version for row in rows}) == len({row.sha256 for row in rows}) == len(rows)
    assert all(len(row.sha256) == 64 and row.python.startswith("3.") for row in rows)


@pytest.mark.parametrize(("wanted", "nearest"), [("0.3.0", "0.4.0"), ("9.9", releases()[-1].version)])
def test_beyond_the_ends_names_the_end(wanted: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=rf"nearest: {nearest}\n") as caught:
        row_of(wanted)
    assert caught.value.hint == "mcore-compat matrix list"


def write_wheel(folder: Path, version: str, *, recorded: bytes = b"x = 1\n") -> Path:
    """A wheel of that version whose one module is ``x = 1`` and whose RECORD speaks of ``recorded``."""
    info = f"megatron_core-{version}.dist-info"
    digest = base64.urlsafe_b64encode(hashlib.sha256(recorded).digest()).rstrip(b"=").decode()
    metadata = f"Metadata-Version: 2.1\nName: megatron-core\nVersion: {version}\n"
    path = folder / f"megatron_core-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("megatron/core/__init__.py", "x = 1\n")
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        record = f"megatron/core/__init__.py,sha256={digest},{len(recorded)}\n{info}/RECORD,,\n"
        archive.writestr(f"{info}/RECORD", record)
    return path


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place pip can fetch from."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    for name, value in {"CONFIG_FILE": os.devnull, "NO_INDEX": "1", "FIND_LINKS": str(shelf)}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    return shelf


def test_offline_is_a_clear_error(tmp_path: Path, shelf: Path) -> None:
    with pytest.raises(EnvironmentMismatch, match=r"pip cannot fetch megatron-core 0\.4\.0") as caught:
        overlay("0.4.0", tmp_path, say=lambda _: None)
    assert str(tmp_path / "overlays" / "0.4.0") in caught.value.hint
    assert list((tmp_path / "overlays").iterdir()) == []


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the table holds sums of x86_64 wheels")
def test_other_wheel_than_the_tables_is_refused(tmp_path: Path, shelf: Path) -> None:
    write_wheel(shelf, "0.4.0")
    with pytest.raises(EnvironmentMismatch, match=f"expected {row_of('0.4.0').sha256}"):
        overlay("0.4.0", tmp_path, say=lambda _: None)
    assert list((tmp_path / "overlays").iterdir()) == []


@pytest.fixture
def other_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")


@pytest.mark.usefixtures("other_machine")
def test_other_machine_is_told_and_record_is_checked(tmp_path: Path, shelf: Path) -> None:
    write_wheel(shelf, "0.4.0")
    said: list[str] = []
    assert (overlay("0.4.0", tmp_path, said.append) / "megatron" / "core" / "__init__.py").is_file()
    assert "checked by its RECORD" in said[-1]
    write_wheel(shelf, "0.5.0", recorded=b"x = 2\n")
    with pytest.raises(EnvironmentMismatch, match=r"RECORD says: megatron/core/__init__\.py"):
        overlay("0.5.0", tmp_path, said.append)


@pytest.mark.usefixtures("other_machine")
def test_fetched_once_and_again_when_damaged(tmp_path: Path, shelf: Path) -> None:
    wheel = write_wheel(shelf, "0.4.0")
    said: list[str] = []
    module = overlay("0.4.0", tmp_path, said.append) / "megatron" / "core" / "__init__.py"
    overlay("0.4.0", tmp_path, said.append)
    assert sum("fetching" in line for line in said) == 1
    module.write_text("")
    overlay("0.4.0", tmp_path, said.append)
    assert module.read_text() == "x = 1\n"
    wheel.unlink()
    assert overlay("0.4.0", tmp_path, said.append) == module.parents[2]


@pytest.mark.usefixtures("other_machine")
def test_several_at_once_leave_one_whole_overlay(tmp_path: Path, shelf: Path) -> None:
    write_wheel(shelf, "0.4.0")
    with ThreadPoolExecutor(3) as pool:
        folders = list(pool.map(lambda _: overlay("0.4.0", tmp_path, lambda _: None), range(3)))
    assert set(folders) == {tmp_path / "overlays" / "0.4.0"}
    assert [path.name for path in (tmp_path / "overlays").iterdir()] == ["0.4.0"]


def test_unwritable_cache_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentMismatch, match="cannot write the overlay") as caught:
        overlay("0.4.0", tmp_path / "file", say=lambda _: None)
    assert "MCORE_COMPAT_CACHE" in caught.value.hint
