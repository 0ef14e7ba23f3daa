"""Turns keys with their texts into models. Errors name the first key that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from calving.errors import ConfigError
from calving.secrets import shown
from calving.settings.files import has_reference
from calving.wording import meant, missing, wrong_value

M = TypeVar("M", bound=BaseModel)


def validate(model: type[M], values: Mapping[str, str], prefix: str, *, resolved: bool = True) -> M:
    """The values as a model. ``prefix``: of their keys, in errors. ``resolved``: whether references are looked up; the
    value of a key with one that is not may be any, and the key's default stands for it.

    :raises ConfigError: a value is wrong, or is missing.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        if not resolved and first["type"] != "extra_forbidden" and has_reference(values.get(name, "")):
            return validate(model, {k: v for k, v in values.items() if k != name}, prefix, resolved=False)
        raise _explained(error, model, values, prefix) from error


def _explained(error: ValidationError, model: type[BaseModel], values: Mapping[str, str], prefix: str) -> ConfigError:
    first = error.errors()[0]
    key = prefix + ".".join(str(part) for part in first["loc"])
    message = wrong_value(key, first)
    if first["type"] == "missing":
        return ConfigError(f"{key} is missing{missing(key, values, prefix) or ': give it a value'}")
    if first["type"] == "extra_forbidden":
        names = [str(each.alias) for each in model.model_fields.values()]
        hint = meant(key.removeprefix(prefix), names, 0.6, prefix) or f"; there are {', '.join(names)}"
        return ConfigError(f"unknown key '{key}'{hint}")
    is_quoted = any(quoted in message for quoted in (repr(first["input"]), f"'{first['input']}'"))
    given = f" (given: {shown(key, first['input'])})" if first["loc"] and not is_quoted else ""
    return ConfigError(f"{key}: {message}{given}" if first["loc"] else message)
