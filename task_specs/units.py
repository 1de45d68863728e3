"""Numbers, durations, sizes and ranges as people write them.

Each reader takes the characters typed and returns a value, or raises ValueError with what to write
instead. Digits are ASCII and decimal; a leading zero is refused, because YAML reads it as octal.

* number    `3`, `3.0`, `.5`, `2e-5`, `1E+4`; not `1_000`, `0,5`, `0x10`, inf, nan
* whole     a number without a fraction: `2`, `2.0`, `1e3`
* duration  numbers with units s, m, h, d, w, largest first, each once: `90s`, `1h30m`, `1.5h`,
            `10 m`. Case does not matter. A number without a unit only where the field names one.
* Slurm's   a duration, or what sbatch(1) takes for --time: minutes, minutes:seconds,
  time      hours:minutes:seconds, days-hours, days-hours:minutes, days-hours:minutes:seconds
* size      a whole number of GB, or with a unit KB to PB (KiB, Ki and K mean the same 1024 bytes)
* amount    for cpus and memory: `8` exactly, `8+` at least; for memory also `64GB` and `4x`,
            4 GB for each CPU
* range     `2..8`, both ends included, or one number for both
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Literal

from burst.task_specs.model import Amount, Range

SECONDS = {"w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1}
UNITS = "units are s, m, h, d, w, as in 90s, 10m, 1h30m, 2d"
LONGEST_S = 3650 * 86_400
_NAMES = {"s": "seconds", "m": "minutes"}

_WHOLE = r"(?:0|[1-9][0-9]*)"
_NUMBER = re.compile(rf"[-+]?(?:{_WHOLE}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_DECIMAL = re.compile(rf"{_WHOLE}(?:\.[0-9]+)?")
_PART = re.compile(rf"\s*({_WHOLE}(?:\.[0-9]+)?)\s*([a-z]*)")
_SLURM = re.compile(r"(?:(\d{1,9})-)?(\d{1,9}(?::\d{1,9}){0,2})", re.ASCII)
_SIZE = re.compile(rf"({_WHOLE}(?:\.[0-9]+)?)\s*(?:([kmgtp])(?:i?b|i)?)?")
_RANGE = re.compile(rf"({_WHOLE})\s*\.\.\s*({_WHOLE})")
_GB = {
    "k": Decimal(1) / 1024**2, "m": Decimal(1) / 1024, "g": Decimal(1),
    "t": Decimal(1024), "p": Decimal(1024**2),
}  # fmt: skip
MAX_DIGITS = 30
LAST_PORT = 65_535


def number(text: str) -> int | float:
    """Read a finite number; it stays an int when it is written as one."""
    text = text.strip()
    if not is_number(text):
        raise ValueError(f"needs a number, as in 8, 0.5 or 2e-5{_why_not(text)}")
    if re.fullmatch(r"[-+]?[0-9]+", text):
        if len(text) > MAX_DIGITS:
            raise ValueError(f"more than {MAX_DIGITS} digits")
        return int(text)
    value = float(text)
    if abs(value) == float("inf"):
        raise ValueError("too large for a number")
    if value == 0 and re.search("[1-9]", re.split("[eE]", text)[0]):
        raise ValueError("too small: it would become 0")
    return value


def is_number(text: str) -> bool:
    """Say whether the text has the form of a number."""
    return _NUMBER.fullmatch(text) is not None


def _why_not(text: str) -> str:
    if re.fullmatch(r"[-+]?[0-9]+,[0-9]+", text):
        return "; the decimal sign is a point"
    if "_" in text:
        return "; leave out the underscores"
    if re.fullmatch(r"[-+]?0[0-9]+", text):
        return "; leave out the leading zero"
    return ""


def whole(text: str) -> int:
    """Read a number without a fraction."""
    text = text.strip()
    if not is_number(text):
        raise ValueError(f"needs a whole number, as in 2{_why_not(text)}")
    value = number(text)
    if value != int(value):
        raise ValueError("needs a whole number, as in 2")
    if abs(value) >= 10**MAX_DIGITS:
        raise ValueError(f"more than {MAX_DIGITS} digits")
    return int(value)


def usd(text: str) -> float:
    """Read a positive amount of US dollars: `120`, `120.50` or `$120`."""
    text = text.strip()
    try:
        value = number(text.removeprefix("$"))
    except ValueError as error:
        raise ValueError("needs US dollars as a plain number, as in 120 or 120.50") from error
    if value <= 0:
        raise ValueError("needs to be more than 0 dollars")
    return float(value)


def duration_s(
    text: str, *, default: Literal["s", "m"] | None = None, shortest: Literal["s", "m"] = "s"
) -> float:
    """Read a duration in seconds.

    `default` is the unit of a number without one, if the field has it. With `shortest` "m" the
    result is whole minutes.
    """
    typed = text.strip().lower()
    if typed.startswith("-"):
        raise ValueError(f"a duration cannot be negative; {UNITS}")
    units = UNITS if shortest == "s" else UNITS.replace("s, m", "m").replace("90s, ", "")
    if _DECIMAL.fullmatch(typed):
        if default is None:
            raise ValueError(f"needs a unit; {units}")
        typed += default
    total = _sum_s(typed, units)
    if shortest == "m" and total % 60 != 0:
        raise ValueError(f"the shortest unit here is a minute; {units}")
    if total > LONGEST_S:
        raise ValueError(f"longer than {LONGEST_S // 86_400} days; {units}")
    return float(total)


def _sum_s(typed: str, units: str) -> Decimal:
    total, rest, left = Decimal(0), typed, list(SECONDS)
    while rest:
        part = _PART.match(rest)
        if part is None or len(part[1]) > MAX_DIGITS or part[2] not in SECONDS:
            raise ValueError(f"not a duration; {units}")
        if part[2] not in left:
            raise ValueError(f"each unit once and the largest first; {units}")
        left = left[left.index(part[2]) + 1 :]
        total += Decimal(part[1]) * SECONDS[part[2]]
        rest = rest[part.end() :]
    if not typed:
        raise ValueError(f"empty; {units}")
    return total


def slurm_time_s(text: str) -> float:
    """Read a time limit of Slurm's in seconds, as sbatch does; 0 is no limit.

    >>> [slurm_time_s(text) for text in ("90", "1:30", "4:00:00", "1-12", "1-12:30", "4h")]
    [5400.0, 90.0, 14400.0, 129600.0, 131400.0, 14400.0]
    """
    match = _SLURM.fullmatch(text.strip())
    if match is None:
        try:
            return duration_s(text)
        except ValueError as error:
            raise ValueError(f"{error}; or as sbatch has it: 90 (minutes), 4:00:00, 1-12") from None
    days, parts = int(match[1] or 0), match[2].split(":")
    first = "h" if match[1] or len(parts) > 2 else "m"  # noqa: PLR2004 - hours:minutes:seconds
    sizes = [SECONDS[unit] for unit in "hms"["hms".index(first) :]]
    total = days * SECONDS["d"] + sum(
        int(part) * size for part, size in zip(parts, sizes, strict=False)
    )
    if total > LONGEST_S:
        raise ValueError(f"longer than {LONGEST_S // 86_400} days; 0 is no limit")
    return float(total)


def size_gb(text: str) -> int:
    """Read a size as a whole, positive number of GB (1024 based, as SkyPilot counts)."""
    value = _gb(text.strip())
    if value is None or "." in text:
        raise ValueError("needs a whole number of GB, or one with KB, MB, GB or TB, as in 256GB")
    if value != int(value):
        raise ValueError(f"not a whole number of GB; write {int(value) + 1}GB")
    if value == 0:
        raise ValueError("needs to be more than 0 GB")
    return int(value)


def _gb(text: str) -> Decimal | None:
    match = _SIZE.fullmatch(text.lower())
    if match is None or len(match[1]) > MAX_DIGITS:
        return None
    return Decimal(match[1]) * _GB[match[2] or "g"]


def cpus(text: str) -> Amount:
    """Read a CPU count: `8` or `8+`."""
    typed = text.strip()
    plain = typed.removesuffix("+").strip()
    if not _DECIMAL.fullmatch(plain) or len(plain) > MAX_DIGITS:
        raise ValueError("needs a number of CPUs, as in 8, or 8+ for at least 8")
    return _positive(Amount(value=float(plain), at_least=typed.endswith("+")))


def memory_gb(text: str) -> Amount:
    """Read a memory size: `64`, `64GB`, `64+`, or `4x` for 4 GB for each CPU."""
    typed = text.strip()
    plain = typed.removesuffix("+").strip()
    per_cpu = plain == typed and plain.endswith("x")
    value = _gb(plain.removesuffix("x") if per_cpu else plain)
    if value is None or (per_cpu and not _DECIMAL.fullmatch(plain.removesuffix("x"))):
        raise ValueError("needs GB, as in 64 or 64GB, 64+ for at least 64, 4x for 4 for each CPU")
    return _positive(Amount(value=float(value), at_least=typed.endswith("+"), per_cpu=per_cpu))


def _positive(amount: Amount) -> Amount:
    if amount.value <= 0:
        raise ValueError("needs to be more than 0")
    return amount


def amount_text(amount: Amount) -> str:
    """Write an amount so that its reader gives it back, never as `1e+06`."""
    suffix = "+" if amount.at_least else "x" if amount.per_cpu else ""
    return decimal_text(amount.value) + suffix


def decimal_text(value: float) -> str:
    """Write a number in digits, without an exponent or a needless `.0`."""
    text = format(Decimal(repr(value)), "f")
    return text.removesuffix(".0")


def count_range(text: str) -> Range:
    """Read `2..8`, or `2` for exactly 2."""
    typed = text.strip()
    match = _RANGE.fullmatch(typed)
    if match is None and not re.fullmatch(_WHOLE, typed):
        raise ValueError("needs a count or a range, as in 2 or 2..8")
    low, high = (match[1], match[2]) if match else (typed, typed)
    if max(len(low), len(high)) > MAX_DIGITS:
        raise ValueError(f"more than {MAX_DIGITS} digits")
    if int(low) < 1:
        raise ValueError("needs at least 1")
    if int(low) > int(high):
        raise ValueError(f"the smaller number first: {high}..{low}")
    return Range(low=int(low), high=int(high))


def ports(text: str) -> str:
    """Read one port or a range of them: `8080`, `10022-10040`."""
    typed = text.strip()
    match = re.fullmatch(r"([1-9][0-9]{0,4})(?:-([1-9][0-9]{0,4}))?", typed)
    if match is None:
        raise ValueError("needs a port or a range of ports, as in 8080 or 10022-10040")
    low, high = int(match[1]), int(match[2] or match[1])
    if max(low, high) > LAST_PORT:
        raise ValueError(f"ports go up to {LAST_PORT}")
    if low > high:
        raise ValueError(f"the smaller port first: {high}-{low}")
    return typed
