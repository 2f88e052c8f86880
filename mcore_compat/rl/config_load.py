"""YAML files and ``key=value`` text into a checked :class:`Config`, and back."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, get_type_hints

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from mcore_compat.errors import ConfigError
from mcore_compat.rl.config import Config
from mcore_compat.rl.config_check import check

# What OmegaConf raises for a value of the wrong type.
_REFUSED = (OmegaConfBaseException, TypeError, ValueError)
# One path is as good as a list of one there, as in verl.
_PATH_LISTS = ("train_files", "val_files")


def load_config(path: Path | None, overrides: Sequence[str] = (), *, world_size: int = 1) -> Config:
    """Read a YAML file and ``key=value`` overrides.

    Args:
        path: The file, ``None`` for the defaults.
        overrides: Dotted keys; a later one wins.
        world_size: Number of ranks, for the checks of batch sizes.

    Raises:
        ConfigError: Unknown key (with the nearest known one), wrong type, or values that do not fit together.
    """
    return config_from(_read_yaml(path) if path else {}, overrides, world_size=world_size)


def config_from(values: Mapping[str, Any], overrides: Sequence[str] = (), *, world_size: int = 1) -> Config:
    """The same with a nested mapping in place of a file."""
    try:
        merged = OmegaConf.merge(OmegaConf.create(dict(values)), _parse_overrides(overrides))
        raw = OmegaConf.to_container(merged, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(f"The settings contradict each other: {_first_line(error)}") from error
    _refuse_unknown_keys(raw)
    config = _to_config(_with_path_lists(raw))
    check(config, world_size)
    return config


def to_yaml(config: Config) -> str:
    """All settings of a run; :func:`load_config` reads the text back to an equal value."""
    return OmegaConf.to_yaml(OmegaConf.create(dataclasses.asdict(config)))


def known_keys(kind: type = Config, prefix: str = "") -> Iterator[str]:
    """Yield the dotted path of every setting."""
    for name, hint in get_type_hints(kind).items():
        if dataclasses.is_dataclass(hint):
            yield from known_keys(hint, f"{prefix}{name}.")  # type: ignore[arg-type]
        else:
            yield prefix + name


def _read_yaml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ConfigError(f"No configuration file at {path}", hint="give the path of a YAML file")
    try:
        loaded = OmegaConf.to_container(OmegaConf.load(path))
    except (YAMLError, UnicodeDecodeError, OmegaConfBaseException) as error:
        raise ConfigError(f"{path} is not readable as YAML: {' '.join(str(error).split())}") from error
    if not isinstance(loaded, dict):
        raise ConfigError(f"{path} holds a {type(loaded).__name__}; expected keys such as 'data:' and 'trainer:'")
    return {str(key): value for key, value in loaded.items()}


def _parse_overrides(overrides: Sequence[str]) -> Any:
    for text in overrides:
        key, equals, _ = text.partition("=")
        if not equals or not key or key.startswith(("+", "-", "~")):
            raise ConfigError(
                f"Cannot read the override {text!r}",
                hint="write it as key=value, e.g. trainer.total_training_steps=5",
            )
    try:
        return OmegaConf.from_dotlist(list(overrides))
    except (YAMLError, OmegaConfBaseException) as error:
        raise ConfigError(f"Cannot read the overrides {list(overrides)}: {_first_line(error)}") from error


def _refuse_unknown_keys(raw: Any, kind: type = Config, prefix: str = "") -> None:
    hints = get_type_hints(kind)
    for key, value in raw.items():
        if key not in hints:
            raise ConfigError(f"Unknown setting '{prefix}{key}'", hint=_suggestion(f"{prefix}{key}", value))
        if dataclasses.is_dataclass(hints[key]):
            if not isinstance(value, dict):
                inside = ", ".join(get_type_hints(hints[key]))
                raise ConfigError(f"'{prefix}{key}' is {value!r}; expected a group with the keys {inside}")
            _refuse_unknown_keys(value, hints[key], f"{prefix}{key}.")


def _suggestion(path: str, value: Any) -> str:
    known = list(known_keys())
    groups = {key.rsplit(".", depth)[0] for key in known for depth in range(1, key.count(".") + 1)}
    candidates = sorted(groups) if isinstance(value, dict) else known
    nearest = max(candidates, key=lambda candidate: _likeness(path, candidate))
    return f"did you mean '{nearest}'?"


def _likeness(path: str, candidate: str) -> float:
    """The last part decides (a right name in a wrong group is a common slip), the whole path breaks ties."""
    asked, offered = path.rsplit(".", 1)[-1], candidate.rsplit(".", 1)[-1]
    words = set(asked.split("_"))
    shared = len(words & set(offered.split("_"))) / len(words)
    return _similarity(asked, offered) + 0.5 * shared + 0.75 * _similarity(path, candidate)


def _similarity(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()


def _with_path_lists(raw: Any) -> Any:
    data = raw.get("data", {})
    lists = {key: [data[key]] if isinstance(data[key], str) else data[key] or [] for key in _PATH_LISTS if key in data}
    return {**raw, "data": {**data, **lists}}


def _to_config(raw: Any) -> Config:
    try:
        return _merge(raw)
    except _REFUSED as error:
        key = getattr(error, "full_key", None) or _culprit(raw)
        raise ConfigError(f"'{key}' has a value of the wrong type: {_first_line(error)}") from error


def _merge(raw: Any) -> Config:
    config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config), raw))
    assert isinstance(config, Config)
    return config


def _culprit(raw: Any) -> str:
    """Name the setting that does not merge; OmegaConf's own error does not do so for lists."""
    for path, value in _leaves(raw):
        try:
            _merge(reduce(lambda inner, key: {key: inner}, reversed(path), value))
        except _REFUSED:
            return ".".join(path)
    return "one of the settings"


def _leaves(raw: Any, kind: type = Config, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, hint in get_type_hints(kind).items():
        if key in raw and dataclasses.is_dataclass(hint):
            yield from _leaves(raw[key], hint, (*path, key))  # type: ignore[arg-type]
        elif key in raw:
            yield (*path, key), raw[key]


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
