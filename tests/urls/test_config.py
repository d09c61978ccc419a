"""Custom schemes: where the file is looked for, what it may say, and what is refused by name."""

from __future__ import annotations

import traceback
from pathlib import Path
from unittest import mock

import pytest

import fsabs
from fsabs.backends.local import Local
from fsabs.core import errors
from fsabs.core.errors import ConfigError
from fsabs.urls import config

pytestmark = pytest.mark.quick


@pytest.fixture(autouse=True)
def _own_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PFIO_CONFIG_PATH", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize("place", ["PFIO_CONFIG_PATH", "XDG_CONFIG_HOME", "HOME"])
def test_where_the_file_is_found(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    data.mkdir()
    text = f"[mine]\nscheme = file\nprefix = {data}\n"
    if place == "PFIO_CONFIG_PATH":
        monkeypatch.setenv(place, str(write(tmp_path / "other.ini", text)))
    elif place == "XDG_CONFIG_HOME":
        monkeypatch.setenv(place, str(write(tmp_path / "xdg/pfio.ini", text).parent))
    else:
        write(tmp_path / ".config/pfio.ini", text)
    fs = fsabs.from_url("mine:///")
    fs.write_bytes("a", b"1")
    assert (data / "a").read_bytes() == b"1"


@pytest.mark.parametrize("homes", [{}, {"XDG_CONFIG_HOME": ".config"}, {"HOME": ".config/.."}])
def test_the_working_directory_is_no_home(
    homes: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "pwd.getpwuid", lambda _: dict[str, str]()["no such user"]
    )  # as for the user of many a container
    monkeypatch.delenv("HOME")
    for name, value in homes.items():
        monkeypatch.setenv(name, value)
    for folder in (".config", "~/.config"):
        write(tmp_path / folder / "pfio.ini", "[planted]\nscheme = memory\n")
    assert config.config_path() == "/dev/null"
    with pytest.raises(fsabs.UnknownSchemeError):
        fsabs.from_url("planted://x")


def flushes(fs: fsabs.FS) -> bool:
    """Whether a file that is written is flushed to the disk."""
    with mock.patch("os.fsync") as fsync:
        fs.write_bytes("flushed", b"1")
    return fsync.called


def test_options_are_expanded_and_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUSH", "yes")
    monkeypatch.setenv("MAKE", "1")
    fsabs.add_custom_scheme("mine", "file", {"fsync": "${FLUSH}", "create": "$MAKE"})
    fs = fsabs.from_url(f"mine://{tmp_path}/new")
    assert isinstance(fs, Local)
    assert flushes(fs)
    assert (tmp_path / "new").is_dir()


def test_keyword_arguments_win(tmp_path: Path) -> None:
    fsabs.add_custom_scheme("mine", "file", {"fsync": "true"})
    fs = fsabs.from_url(f"mine://{tmp_path}", fsync=False)
    assert isinstance(fs, Local)
    assert not flushes(fs)


def test_a_missing_variable_is_named(tmp_path: Path) -> None:
    fsabs.add_custom_scheme("mine", "file", {"fsync": "$NOT_SET_ANYWHERE"})
    with pytest.raises(ConfigError, match=r"\[mine\] fsync.*NOT_SET_ANYWHERE"):
        fsabs.from_url(f"mine://{tmp_path}")


def test_a_doubled_dollar_is_a_dollar() -> None:
    assert config.expand("a$$b", "s", "k") == "a$b"
    assert config.expand(3, "s", "k") == 3


def test_an_unknown_key_is_refused_with_the_nearest(tmp_path: Path) -> None:
    fsabs.add_custom_scheme("mine", "file", {"fsnyc": "1"})
    with pytest.raises(ConfigError, match=r"\[mine\].*'fsnyc'.*'fsync'"):
        fsabs.from_url(f"mine://{tmp_path}")


def test_a_bad_value_is_refused(tmp_path: Path) -> None:
    fsabs.add_custom_scheme("mine", "file", {"fsync": "perhaps"})
    with pytest.raises(ConfigError, match=r"\[mine\] fsync must be bool, not 'perhaps'"):
        fsabs.from_url(f"mine://{tmp_path}")


def test_schemes_may_stand_on_schemes(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    fsabs.add_custom_scheme("lower", "file", {"prefix": f"{tmp_path}/a", "fsync": "no"})
    fsabs.add_custom_scheme("upper", "lower", {"prefix": "b", "fsync": "yes"})
    fs = fsabs.from_url("upper:///")
    assert isinstance(fs, Local)
    assert flushes(fs)
    fs.write_bytes("c", b"x")
    assert (tmp_path / "a/b/c").exists()


def test_a_circle_is_refused_by_name() -> None:
    fsabs.add_custom_scheme("one", "two")
    fsabs.add_custom_scheme("two", "one")
    with pytest.raises(ConfigError, match="one -> two -> one"):
        fsabs.from_url("one:///x")


def test_a_built_in_scheme_cannot_be_defined_again() -> None:
    with pytest.raises(ConfigError, match="s3"):
        fsabs.add_custom_scheme("s3", "file")


def test_a_section_that_has_no_effect_is_told_where_its_name_is_opened(tmp_path: Path) -> None:
    path = write(tmp_path / ".config/pfio.ini", "[s3]\nendpoint = https://store\n")
    with pytest.warns(errors.ConfigWarning, match=r"line 1: \[s3\] is a built-in scheme"):
        fsabs.from_url("s3://bucket", anonymous=True)
    path.write_bytes(b"\xff")  # no text: it breaks no other URL
    assert fsabs.from_url("s3://bucket", anonymous=True).scheme == "s3"


def test_a_section_without_scheme_is_refused(tmp_path: Path) -> None:
    write(tmp_path / ".config/pfio.ini", "[mine]\nfsync = 1\n")
    with pytest.raises(ConfigError, match=r"\[mine\] has no scheme"):
        fsabs.from_url("mine:///x")


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / ".config/pfio.ini", "scheme = file\n")
    with pytest.raises(fsabs.UnknownSchemeError, match="line 1"), pytest.warns(errors.ConfigWarning, match=str(path)):
        fsabs.from_url("mine:///x")


def test_the_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = write(tmp_path / ".config/pfio.ini", "[mine]\nscheme = file\n")
    assert fsabs.get_custom_scheme("mine") == {"scheme": "file"}
    path.write_text("[mine]\nscheme = file\nfsync = on\n")
    assert fsabs.get_custom_scheme("mine") == {"scheme": "file", "fsync": "on"}
    assert fsabs.get_custom_scheme("other") is None


def test_keys_may_be_written_with_spaces(tmp_path: Path) -> None:
    write(tmp_path / ".config/pfio.ini", "[mine]\nscheme = s3\naws access_key_id = me\n")
    assert fsabs.get_custom_scheme("mine") == {"scheme": "s3", "aws_access_key_id": "me"}


@pytest.mark.parametrize(
    ("text", "annotation", "value"),
    [
        ("3", int, 3),
        ("3", "int | None", 3),
        ("none", "int | None", None),
        ("2.5", float, 2.5),
        ("2", "float | int", 2),
        ("off", bool, False),
        ("a, b", "list[str]", ["a", "b"]),
        ("x", str, "x"),
        ("5", str, "5"),
    ],
)
def test_conversion(text: str, annotation: object, value: object) -> None:
    kind = eval(annotation) if isinstance(annotation, str) else annotation
    assert config.convert(text, kind, "here") == value


def test_an_unknown_scheme_lists_what_is_known() -> None:
    fsabs.add_custom_scheme("mine", "file")
    with pytest.raises(fsabs.UnknownSchemeError, match=r"nonesuch.*file.*hdfs.*s3.*mine.*pfio\.ini"):
        fsabs.from_url("nonesuch://x/y")


def test_no_line_of_the_file_is_shown(tmp_path: Path) -> None:
    """There may be a secret in it."""
    path = write(tmp_path / ".config/pfio.ini", "secret = hunter2\n")
    with (
        pytest.warns(errors.ConfigWarning) as warned,
        pytest.raises(fsabs.UnknownSchemeError, match="line 1") as caught,
    ):
        fsabs.from_url("mine://x/y")
    assert "hunter2" not in str(warned[0].message)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
    path.write_text("[mine]\nscheme = memory\nhunter2\n")
    with pytest.warns(errors.ConfigWarning), pytest.raises(ConfigError, match="line 3") as refused:
        fsabs.from_url("mine://x/y")
    assert "hunter2" not in "".join(traceback.format_exception(refused.value))


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path: Path) -> None:
    write(tmp_path / ".config/pfio.ini", "\ufeff[mine]\nscheme = memory\nprefix = 100%\n")
    assert fsabs.from_url("mine://x", create=True).url() == "memory://x/100%25"


def test_a_prefix_that_is_no_path_is_refused() -> None:
    for prefix in ("../x", "a\0b", 5):
        fsabs.add_custom_scheme("mine", "memory", {"prefix": prefix})
        with pytest.raises(ConfigError, match="prefix"):
            fsabs.from_url("mine://x")


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


def test_the_prefix_of_a_scheme_on_a_scheme_stays_inside_of_that(tmp_path: Path) -> None:
    fsabs.add_custom_scheme("lower", "file", {"prefix": f"{tmp_path}/a"})
    fsabs.add_custom_scheme("upper", "lower", {"prefix": "b/../../c"})
    with pytest.raises(ConfigError, match=r"\[upper\] is no path"):
        fsabs.from_url("upper:///x")


def test_inline_comments_are_comments(tmp_path: Path) -> None:
    write(
        tmp_path / ".config/pfio.ini", "[mine]  ; a comment\nscheme = memory ; known\nprefix = a;b#c  # a directory\n"
    )
    assert fsabs.from_url("mine://x", create=True).url() == "memory://x/a;b%23c"


def test_an_unknown_scheme_of_a_section_is_named(tmp_path: Path) -> None:
    write(tmp_path / ".config/pfio.ini", "[mine]\nscheme = memroy\n")
    with pytest.raises(fsabs.UnknownSchemeError, match=r"\[mine\] has scheme = memroy.*did you mean 'memory'"):
        fsabs.from_url("mine://x")


def test_a_misspelt_switch_of_a_cache_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for value, hint in (("Ture", "did you mean 'true'"), ("flase", "did you mean 'false'")):
        with pytest.raises(ValueError, match=hint):
            fsabs.from_url(tmp_path, cache=value)
    assert not (tmp_path / "Ture").exists()


@pytest.mark.parametrize(
    "query", ["?jwt=SECRET", "?code=SECRET", "#access_token=SECRET", "?a=1&sig=SECRET#x", "#id_jwt=SECRET"]
)
def test_no_secret_of_a_query_or_fragment_is_shown(query: str) -> None:
    shown = errors.without_secrets(f"https://host/path{query}")
    assert "SECRET" not in shown
    assert errors.without_secrets("https://host/a?page=2&version=1") == "https://host/a?page=2&version=1"


BAD_SECTIONS = [
    "[bad]\nno value here\n",
    "[file]\nscheme = s3\n",
    "[Bad Name]\nscheme = memory\n",
    "[bad]\na = 1\na = 2\n",
]


@pytest.mark.parametrize("bad", BAD_SECTIONS)
@pytest.mark.parametrize("first", [True, False])
def test_a_bad_section_breaks_only_its_own_scheme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: str, first: bool
) -> None:
    good = "[good]\nscheme = memory\nprefix = x\n"
    path = tmp_path / ".config/pfio.ini"
    write(path, bad + good if first else good + bad)
    with pytest.warns(errors.ConfigWarning, match=r"pfio\.ini.*line \d"):
        assert fsabs.from_url("good://y", create=True).url() == "memory://y/x"
    if bad.startswith("[bad]"):
        with pytest.raises(ConfigError, match=r"pfio\.ini.*line \d"):
            fsabs.from_url("bad://x")
    monkeypatch.setenv("FSABS_CONFIG_STRICT", "1")
    write(path, bad + good + "\n")
    with pytest.raises(ConfigError, match=r"line \d"):
        fsabs.from_url("good://y")


def test_an_unknown_key_is_named_and_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = "[mine]\nscheme = base\n; a comment\nlinsk: inside\n"
    text = f"[DEFAULT]\nfsync = yes\n\n{mine}[base]\nscheme=file\nprefix={tmp_path}\n"
    write(tmp_path / ".config/pfio.ini", text)
    said = r"pfio\.ini, line 7: \[mine\]: Local has no option 'linsk'; did you mean 'links'"
    with pytest.warns(errors.ConfigWarning, match=said + ".*ignored"):
        fs = fsabs.from_url("mine:///")
    assert isinstance(fs, fsabs.Local)
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
    monkeypatch.delenv("FSABS_CONFIG_STRICT")
    fsabs.add_custom_scheme("program", "file", {"linsk": "inside"})
    with pytest.raises(ConfigError, match="custom scheme .program.*did you mean 'links'"):  # no file can be mended
        fsabs.from_url("program:///")


def test_defaults_hold_for_all_sections_wherever_they_stand(tmp_path: Path) -> None:
    text = f"[mine]\nscheme = file\nprefix={tmp_path}\n\n[DEFAULT]\nfsync = yes\n"
    write(tmp_path / ".config/pfio.ini", text)
    fs = fsabs.from_url("mine:///")
    assert isinstance(fs, fsabs.Local)
    assert flushes(fs)


@pytest.mark.parametrize("key", ["endpiont", "end_point", "endpoint_url", "Endpoints"])
def test_a_misspelt_endpoint_says_where_requests_go(tmp_path: Path, key: str) -> None:
    write(tmp_path / ".config/pfio.ini", f"[minio]\nscheme = s3\n{key} = http://127.0.0.1:9000\n")
    said = r"line 3.*did you mean 'endpoint'\? Without an endpoint, requests go to amazonaws\.com"
    with pytest.warns(errors.ConfigWarning, match=said):
        fsabs.from_url("minio://bucket", anonymous=True)
    with pytest.raises(TypeError, match="did you mean 'endpoint'.*amazonaws"):
        fsabs.from_url("s3://bucket", endpiont="http://127.0.0.1:9000")


def test_strict_refuses_a_bad_section_elsewhere(tmp_path: Path) -> None:
    write(tmp_path / ".config/pfio.ini", "[good]\nscheme = memory\n[bad]\nno key\n")
    with pytest.warns(errors.ConfigWarning, match="line 4"):
        fsabs.from_url("good://x")
    with pytest.raises(ConfigError, match="line 4"):
        fsabs.from_url("good://x", strict=True)
