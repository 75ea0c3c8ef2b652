"""How things are shown: bytes, times and sizes for people, bytes and messages for programs."""

import base64
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from google.protobuf.message import Message

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Made once: `json.dumps` with other separators than its own makes an encoder per call.
compact_json = json.JSONEncoder(separators=(",", ":")).encode
_WHITESPACE = str.maketrans("", "", "\n\r\t")


def shown_bytes(data: bytes | None, limit: int | None) -> str:
    """For people: ``"text"`` quoted as in JSON, ``hex:…`` if it is not printable UTF-8, or ``null``.

    Only printable characters and line breaks count as text, so that a record cannot send commands to the terminal.
    """
    if data is None:
        return "null"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if text.translate(_WHITESPACE).isprintable():
        cut = text if limit is None else text[:limit]
        return json.dumps(cut, ensure_ascii=False) + _rest(len(cut) < len(text), data)
    shown = data if limit is None else data[: limit // 2]
    return f"hex:{shown.hex()}" + _rest(len(shown) < len(data), data)


def _rest(is_cut: bool, data: bytes) -> str:
    return f"… ({len(data)} bytes)" if is_cut else ""


def bytes_field(name: str, data: bytes | None) -> dict[str, str | None]:
    """For programs: ``{name: text}`` if the bytes are UTF-8, else ``{name_base64: …}``; null is ``{name: null}``."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def shown_time(milliseconds: int) -> str:
    """UTC, to the millisecond."""
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds} ms"
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{milliseconds % 1000:03d}Z"


def shown_size(size_bytes: float) -> str:
    """With a unit: 1.2 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.1f} TB"


def counted(number: int, one: str, many: str | None = None) -> str:
    """``1 batch``, ``1,200 batches``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def fields_of(message: Message) -> dict[str, object]:
    """Every field of a message by name, unset ones too. (protobuf's own JSON turns 64-bit numbers into strings.)"""
    return {field.name: _value_of(field.enum_type, getattr(message, field.name)) for field in message.DESCRIPTOR.fields}


def _value_of(enum: object, value: object) -> object:
    if isinstance(value, Message):
        return fields_of(value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_value_of(enum, entry) for entry in value]
    by_number = getattr(enum, "values_by_number", None)
    if by_number is not None and value in by_number:
        return by_number[value].name
    return value
