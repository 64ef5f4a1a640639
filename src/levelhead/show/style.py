"""Colors, percentages and shortened names: what everything drawn for people shares."""

INK, ACCENT, SOFT = "#222222", "#c2410c", "#94a3b8"


def percent(share: float) -> str:
    """Return a share as text in percent: '12.3 %'."""
    return f"{100 * share:.1f} %"


def short(name: str, most: int = 16) -> str:
    """Return a name cut to at most so many characters: 'great w…'."""
    return name if len(name) <= most else name[: most - 1] + "…"
