"""Custom schemes: where the file is looked for, what it may say, and what is refused by name."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import fsabs
from fsabs.core import errors
from fsabs.core.errors import ConfigError
from fsabs.urls import config

pytestmark = pytest.mark.quick


@pytest.fixture(autouse=True)
def _own_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PFIO_CONFIG_PATH", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def ini(tmp_path: Path) -> Path:
    """The configuration file, which is not there yet."""
    (tmp_path / ".config").mkdir()
    return tmp_path / ".config" / "pfio.ini"


@pytest.mark.parametrize("place", ["PFIO_CONFIG_PATH", "XDG_CONFIG_HOME", "HOME"])
def test_where_the_file_is_found(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"PFIO_CONFIG_PATH": "other.ini", "XDG_CONFIG_HOME": "xdg/pfio.ini", "HOME": ".config/pfio.ini"}
    path = tmp_path / files[place]
    path.parent.mkdir(exist_ok=True)
    (tmp_path / "data").mkdir()
    path.write_text(f"[mine]\nscheme = file\nprefix = {tmp_path}/data\n")
    if place != "HOME":
        monkeypatch.setenv(place, str(path if place == "PFIO_CONFIG_PATH" else path.parent))
    fsabs.from_url("mine:///").write_bytes("a", b"1")
    assert (tmp_path / "data/a").read_bytes() == b"1"


@pytest.mark.parametrize("homes", [{}, {"XDG_CONFIG_HOME": ".config"}, {"HOME": ".config/.."}])
def test_the_working_directory_is_no_home(
    homes: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_such_user(_: int) -> None:  # as the user of many a container
        raise KeyError

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pwd.getpwuid", no_such_user)
    monkeypatch.delenv("HOME")
    for name, value in homes.items():
        monkeypatch.setenv(name, value)
    for folder in (".config", "~/.config"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "pfio.ini").write_text("[planted]\nscheme = memory\n")
    assert config.config_path() == "/dev/null"
    with pytest.raises(fsabs.UnknownSchemeError):
        fsabs.from_url("planted://x")


def flushes(fs: fsabs.FS) -> bool:
    """Return whether a file that is written is flushed to the disk."""
    assert isinstance(fs, fsabs.Local)
    with mock.patch("os.fsync") as fsync:
        fs.write_bytes("flushed", b"1")
    return fsync.called


def test_options_are_expanded_and_typed_and_keyword_arguments_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUSH", "yes")
    monkeypatch.setenv("MAKE", "1")
    mine = f"mine://{tmp_path}/new"
    fsabs.add_custom_scheme("mine", "file", {"fsync": "${FLUSH}", "create": "$MAKE"})
    assert flushes(fsabs.from_url(mine))
    assert (tmp_path / "new").is_dir()
    assert not flushes(fsabs.from_url(mine, fsync=False))
    fsabs.add_custom_scheme("priced", "memory", {"prefix": "a$$b"})
    assert fsabs.from_url("priced://x", create=True).url() == "memory://x/a$b"


def test_schemes_may_stand_on_schemes(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    fsabs.add_custom_scheme("lower", "file", {"prefix": f"{tmp_path}/a", "fsync": "no"})
    fsabs.add_custom_scheme("upper", "lower", {"prefix": "b", "fsync": "yes"})
    fs = fsabs.from_url("upper:///")
    assert flushes(fs)
    fs.write_bytes("c", b"x")
    assert (tmp_path / "a/b/c").exists()


@pytest.mark.parametrize(
    ("scheme", "options", "reason"),
    [
        ("file", {"fsync": "$NOT_SET_ANYWHERE"}, r"\[mine\] fsync.*NOT_SET_ANYWHERE"),
        ("file", {"fsync": "perhaps"}, r"\[mine\] fsync must be bool, not 'perhaps'"),
        ("file", {"linsk": "inside"}, "custom scheme .mine.*did you mean 'links'"),  # no file can be mended
        ("other", {}, "mine -> other -> mine"),
        ("memory", {"prefix": "../x"}, "prefix"),
        ("memory", {"prefix": "a\0b"}, "prefix"),
        ("memory", {"prefix": 5}, "prefix"),
        ("lower", {"prefix": "b/../../c"}, r"\[mine\] is no path"),  # which stays inside of that
    ],
)
def test_a_scheme_of_the_program_that_is_wrong_is_refused(scheme: str, options: dict[str, Any], reason: str) -> None:
    fsabs.add_custom_scheme("other", "mine")
    fsabs.add_custom_scheme("lower", "memory", {"prefix": "a"})
    fsabs.add_custom_scheme("mine", scheme, options)
    with pytest.raises(ConfigError, match=reason):
        fsabs.from_url("mine:///x")


def test_a_built_in_scheme_cannot_be_defined_again(ini: Path) -> None:
    with pytest.raises(ConfigError, match="s3"):
        fsabs.add_custom_scheme("s3", "file")
    ini.write_text("[s3]\nendpoint = https://store\n")
    with pytest.warns(errors.ConfigWarning, match=r"line 1: \[s3\] is a built-in scheme"):  # where its name is opened
        fsabs.from_url("s3://bucket", anonymous=True)
    ini.write_bytes(b"\xff")  # no text: it breaks no other URL
    assert fsabs.from_url("s3://bucket", anonymous=True).scheme == "s3"


def test_the_file_is_read_again_when_it_changes(ini: Path) -> None:
    ini.write_text("[mine]\nscheme = file\n")
    assert fsabs.get_custom_scheme("mine") == {"scheme": "file"}
    ini.write_text("[mine]\nscheme = s3\naws access_key-id = me\n")
    assert fsabs.get_custom_scheme("mine") == {"scheme": "s3", "aws_access_key_id": "me"}
    assert fsabs.get_custom_scheme("other") is None


def test_comments_and_a_byte_order_mark_are_no_part_of_the_file(ini: Path) -> None:
    ini.write_text("\ufeff[mine]  ; a comment\nscheme = memory ; known\nprefix = a;b#c 100%  # a directory\n")
    assert fsabs.from_url("mine://x", create=True).url() == "memory://x/a;b%23c%20100%25"


def test_text_is_converted_to_the_type_of_the_option() -> None:
    for text, annotation, value in (
        ("3", int, 3),
        ("3", int | None, 3),
        ("none", int | None, None),
        ("2.5", float, 2.5),
        ("2", float | int, 2),
        ("off", bool, False),
        ("a, b", list[str], ["a", "b"]),
        ("a, b", tuple[str, ...], ("a", "b")),
        ("5", str, "5"),
        ("x", bool | str, "x"),
    ):
        found = config.convert(text, annotation, "here")
        assert (found, type(found)) == (value, type(value)), (text, annotation)


def test_an_unknown_scheme_lists_what_is_known(ini: Path) -> None:
    fsabs.add_custom_scheme("mine", "file")
    with pytest.raises(fsabs.UnknownSchemeError, match=r"nonesuch.*file.*hdfs.*s3.*mine.*pfio\.ini"):
        fsabs.from_url("nonesuch://x/y")
    ini.write_text("[typed]\nscheme = memroy\n")
    with pytest.raises(fsabs.UnknownSchemeError, match=r"\[typed\] has scheme = memroy.*did you mean 'memory'"):
        fsabs.from_url("typed://x")


def test_no_line_of_the_file_is_shown(ini: Path) -> None:
    """There may be a secret in it."""
    ini.write_text("secret = hunter2\n")
    with (
        pytest.warns(errors.ConfigWarning, match=str(ini)) as warned,
        pytest.raises(fsabs.UnknownSchemeError, match="line 1") as caught,
    ):
        fsabs.from_url("mine://x/y")
    ini.write_text("[mine]\nscheme = memory\nhunter2\n")
    with pytest.warns(errors.ConfigWarning), pytest.raises(ConfigError, match="line 3") as refused:
        fsabs.from_url("mine://x/y")
    for error in (caught.value, refused.value):
        assert "hunter2" not in "".join(traceback.format_exception(error)) + str(warned[0].message)


@pytest.mark.parametrize(
    "path", ["../secret", "sub/../../secret", "%2e%2e/secret", "%2E./secret", "/../secret", ".%2e"]
)
def test_a_prefix_is_a_root(tmp_path: Path, path: str) -> None:
    (tmp_path / "data/sub").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/key").write_text("hunter2")
    fsabs.add_custom_scheme("team", "file", {"prefix": f"{tmp_path}/data"})
    assert fsabs.from_url("team:///sub/../sub").url().endswith("/data/sub")
    with pytest.raises(PermissionError) as caught:
        fsabs.from_url(f"team:///{path}")
    assert caught.value.filename == f"team:///{path}"
    with pytest.raises(PermissionError), fsabs.open_url(f"team:///{path}/key", "rb"):
        pass
    with pytest.raises(PermissionError):
        fsabs.from_url("team:///sub").read_bytes(f"{tmp_path}/secret/key")


def test_a_misspelt_switch_of_a_cache_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for value, hint in (("Ture", "did you mean 'true'"), ("flase", "did you mean 'false'")):
        with pytest.raises(ValueError, match=hint):
            fsabs.from_url(tmp_path, cache=value)
    assert not (tmp_path / "Ture").exists()


BAD_SECTIONS = [
    "[bad]\nno value here\n",
    "[file]\nscheme = s3\n",
    "[Bad Name]\nscheme = memory\n",
    "[bad]\na = 1\na = 2\n",
]


@pytest.mark.parametrize("bad", BAD_SECTIONS)
@pytest.mark.parametrize("first", [True, False])
def test_a_bad_section_breaks_only_its_own_scheme(
    ini: Path, monkeypatch: pytest.MonkeyPatch, bad: str, first: bool
) -> None:
    good = "[good]\nscheme = memory\nprefix = x\n"
    ini.write_text(bad + good if first else good + bad)
    with pytest.warns(errors.ConfigWarning, match=r"pfio\.ini.*line \d"):
        assert fsabs.from_url("good://y", create=True).url() == "memory://y/x"
    if bad.startswith("[bad]"):
        with pytest.raises(ConfigError, match=r"pfio\.ini.*line \d"):
            fsabs.from_url("bad://x")
    with pytest.raises(ConfigError, match=r"line \d"):
        fsabs.from_url("good://y", strict=True)
    monkeypatch.setenv("FSABS_CONFIG_STRICT", "1")
    ini.write_text(bad + good + "\n")
    with pytest.raises(ConfigError, match=r"line \d"):
        fsabs.from_url("good://y")


def test_a_section_without_a_scheme_is_refused(ini: Path) -> None:
    ini.write_text("[mine]\nfsync = 1\n")
    with pytest.raises(ConfigError, match=r"\[mine\] has no scheme"):
        fsabs.from_url("mine:///x")


def test_an_unknown_key_is_named_and_ignored(tmp_path: Path, ini: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = "[mine]\nscheme = base\n; a comment\nlinsk: inside\n"
    ini.write_text(f"[DEFAULT]\nfsync = yes\n\n{mine}[base]\nscheme=file\nprefix={tmp_path}\n")
    said = r"pfio\.ini, line 7: \[mine\]: Local has no option 'linsk'; did you mean 'links'"
    with pytest.warns(errors.ConfigWarning, match=said + ".*ignored"):
        fs = fsabs.from_url("mine:///")
    assert flushes(fs)
    assert fsabs.from_url("base:///", strict=True).url() == fs.url()  # its own keys are right
    for strict in (True, None):
        with pytest.raises(ConfigError, match=said):
            fsabs.from_url("mine:///", strict=strict)
        with pytest.raises(ConfigError, match=said), fsabs.open_url("mine:///x", strict=strict):
            pass
        monkeypatch.setenv("FSABS_CONFIG_STRICT", "1")
    with pytest.warns(errors.ConfigWarning, match=said):
        fsabs.from_url("mine:///", strict=False)


def test_defaults_hold_for_all_sections_wherever_they_stand(tmp_path: Path, ini: Path) -> None:
    ini.write_text(f"[mine]\nscheme = file\nprefix={tmp_path}\n\n[DEFAULT]\nfsync = yes\n")
    assert flushes(fsabs.from_url("mine:///"))


@pytest.mark.parametrize("key", ["endpiont", "end_point", "endpoint_url", "Endpoints"])
def test_a_misspelt_endpoint_says_where_requests_go(ini: Path, key: str) -> None:
    ini.write_text(f"[minio]\nscheme = s3\n{key} = http://127.0.0.1:9000\n")
    said = r"line 3.*did you mean 'endpoint'\? Without an endpoint, requests go to amazonaws\.com"
    with pytest.warns(errors.ConfigWarning, match=said):
        fsabs.from_url("minio://bucket", anonymous=True)
    with pytest.raises(TypeError, match="did you mean 'endpoint'.*amazonaws"):
        fsabs.from_url("s3://bucket", endpiont="http://127.0.0.1:9000")
