"""Values as text: durations, counts with their noun, figures that may be missing; and values for JSON.

    format_duration(200.4)      "3 min 20 s"          a measured time
    format_estimate(203)        "3 min 20 s"          a predicted time, no finer than the prediction
    format_count(1, "pair")     "1 pair"
    format_number(None)         "–"
    format_bytes(3 << 20)       "3 MB"
    json_values({"p": nan})     {"p": None}
    format_time(1763764200)     "21 Nov 23:30"        today: "23:30"

Used by the command line and the pages alike.
"""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from training.names import ModelName

# The text for a figure that does not exist.
MISSING = "–"

MINUTE = 60
HOUR = 3_600
DAY = 86_400
YEAR = 365.25 * 86_400


def model_label(model: str | None) -> str:
    """The name of a model for people, without "(cross-encoder)", for places that state the kind of the model."""
    return ModelName.parse(model or "").label.removesuffix(" (cross-encoder)")


def format_duration(seconds: float) -> str:
    """A measured time: "12.3 ms", "4.2 s", "42 s", "3 min 20 s", "2 h 5 min", "2.7 days", "317 years"."""
    if seconds <= 0:
        return "0 s"
    # More milliseconds would round to a second.
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    return _format_whole_seconds(round(seconds))


def format_estimate(seconds: float) -> str:
    """A predicted time, rounded to seconds, tens of seconds (from one minute) or minutes (from ten minutes)."""
    step = 1
    if seconds >= 10 * MINUTE:
        step = MINUTE
    elif seconds >= MINUTE:
        step = 10
    return _format_whole_seconds(max(1, round(seconds / step) * step))


def format_count(count: int, noun: str, plural: str | None = None) -> str:
    """A count with its noun: "1 pair", "2,000 pairs". By default the ``plural`` adds an s to the noun."""
    if count != 1:
        noun = plural or f"{noun}s"
    return f"{count:,} {noun}"


def format_number(value: float | None, digits: int = 2, sign: str = "") -> str:
    """A figure with thousands separators and a true minus sign; a dash for None. ``sign="+"`` adds plus signs."""
    if value is None:
        return MISSING
    # With "z", a small negative value that is rounded to zero has no minus sign.
    return f"{value:{sign}z,.{digits}f}".replace("-", "−")


def format_bytes(size: float) -> str:
    """A size in units of 1,024: "900 bytes", "3 MB", "1.5 GB"."""
    if size < 1 << 10:
        return f"{size:,.0f} bytes"
    value = size / 1024
    unit = "KB"
    for larger_unit in ("MB", "GB"):
        if value >= 1024:
            value /= 1024
            unit = larger_unit
    # Small sizes have one decimal, unless it is 0: "1.5 GB", but "3 MB".
    digits = 0
    if value < 9.95 and round(value, 1) != round(value):
        digits = 1
    return f"{value:,.{digits}f} {unit}"


def json_values(values: Mapping[Any, Any], edit: Callable[[str], str] = str) -> dict[str, Any]:
    """A copy for JSON: NaN and infinities become None, tuples lists, and keys text. ``edit`` changes each text."""
    return {str(key): _json_value(value, edit) for key, value in values.items()}


def _json_value(value: Any, edit: Callable[[str], str]) -> Any:
    if isinstance(value, Mapping):
        return json_values(value, edit)
    if isinstance(value, list | tuple):
        return [_json_value(part, edit) for part in value]
    if isinstance(value, str):
        return edit(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def format_time(seconds: float) -> str:
    """A moment (seconds since 1970) in the server's time zone: "14:05" today, else "21 Nov 23:30"."""
    moment = time.localtime(seconds)
    today = time.localtime()
    is_today = (moment.tm_year, moment.tm_yday) == (today.tm_year, today.tm_yday)
    clock = time.strftime("%H:%M", moment)
    if is_today:
        return clock
    # Windows does not know "%-d", the day without a leading zero.
    return f"{moment.tm_mday} {time.strftime('%b', moment)} {clock}"


def _format_whole_seconds(seconds: int) -> str:
    """A time in seconds, in minutes and seconds, in hours and minutes, or in days or years alone."""
    if seconds < MINUTE:
        return f"{seconds} s"
    if seconds < HOUR:
        return _join(seconds // MINUTE, "min", seconds % MINUTE, "s")
    minutes = round(seconds / MINUTE)
    # Days and years begin at two, so that their nouns are always in the plural.
    if minutes < 48 * 60:
        return _join(minutes // 60, "h", minutes % 60, "min")
    if seconds < 2 * YEAR:
        value = seconds / DAY
        unit = "days"
    else:
        value = seconds / YEAR
        unit = "years"
    digits = 1 if value < 99.95 else 0
    return f"{value:,.{digits}f} {unit}"


def _join(large: int, large_unit: str, small: int, small_unit: str) -> str:
    """A time in two units, or in the large unit alone if nothing is left for the small one."""
    return f"{large} {large_unit} {small} {small_unit}" if small else f"{large} {large_unit}"
