"""Drawing: scales, axes and marks as SVG text.

Colours are CSS custom properties of the page, so that one drawing serves light, dark and print.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from balancedstream.core.printing import printable

WIDTH = 960.0
LEFT = 66.0
RIGHT = 950.0


def clean(text: str) -> str:
    r"""Makes any text fit for HTML: control characters become spaces, markup is escaped.

    >>> clean("<b>\x00&")
    '&lt;b&gt; &amp;'
    """
    return escape(printable(text), quote=True)


def element(tag: str, *children: str, **attributes: str | float) -> str:
    """Writes an element; underscores in attribute names become hyphens, `css` becomes `class`.

    >>> element("text", clean("a<b"), x=1.25, css="tick", text_anchor="end")
    '<text x="1.2" class="tick" text-anchor="end">a&lt;b</text>'
    """
    written = []
    for name, value in attributes.items():
        attribute = "class" if name == "css" else name.replace("_", "-")
        text = clean(value) if isinstance(value, str) else _px(value)
        written.append(f' {attribute}="{text}"')
    if not children:
        return f"<{tag}{''.join(written)}/>"
    return f"<{tag}{''.join(written)}>{''.join(children)}</{tag}>"


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear map from values to pixels.

    Attributes:
        low: value at `start_px`.
        high: value at `end_px`; above `low`.
        start_px: position of `low`.
        end_px: position of `high`.
    """

    low: float
    high: float
    start_px: float
    end_px: float

    def px(self, value: float) -> float:
        """Returns the position of a value, held within the scale."""
        share = (value - self.low) / (self.high - self.low)
        return self.start_px + min(1.0, max(0.0, share)) * (self.end_px - self.start_px)


def nice_ticks(low: float, high: float, count: int) -> list[float]:
    """Picks about `count` round values in [low, high].

    >>> nice_ticks(0.0, 7.3, 4)
    [0.0, 2.0, 4.0, 6.0]
    >>> nice_ticks(1.0, 1.58, 4)
    [1.0, 1.2, 1.4]
    """
    rough = (high - low) / max(1, count)
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(m * magnitude for m in (1.0, 2.0, 2.5, 5.0, 10.0) if m * magnitude >= rough * 0.99)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class Figure:
    """One picture with its words; the legend has a CSS class and a label for each mark."""

    title: str
    caption: str
    svg: str
    legend: tuple[tuple[str, str], ...] = ()


class Panel:
    """One rectangle with two scales (`y.start_px` is its lower edge), and what is drawn in it."""

    def __init__(self, x: Scale, y: Scale) -> None:
        self.x = x
        self.y = y
        self._drawn: list[str] = []

    def add(self, drawn: str) -> None:
        """Adds an element drawn elsewhere."""
        self._drawn.append(drawn)

    def y_axis(
        self,
        label: str,
        format_tick: Callable[[float], str],
        *,
        ticks: Sequence[float] | None = None,
        label_lift_px: float = 9.0,
    ) -> None:
        """Draws grid lines with their values, and the axis label above the panel."""
        for value in nice_ticks(self.y.low, self.y.high, 4) if ticks is None else ticks:
            y = self.y.px(value)
            self._line(self.x.start_px, self.x.end_px, y, y, "grid")
            self.text(self.x.start_px - 8, y + 4, format_tick(value), css="tick", anchor="end")
        self.text(self.x.start_px, self.y.end_px - label_lift_px, label, css="axis")

    def x_axis(self, ticks: Iterable[tuple[float, str, str]], label: str) -> None:
        """Draws tick labels in one or two lines under the panel, and the axis label."""
        bottom = self.y.start_px
        self._line(self.x.start_px, self.x.end_px, bottom, bottom, "baseline")
        for value, first_line, second_line in ticks:
            x = self.x.px(value)
            self._line(x, x, bottom, bottom + 4, "baseline")
            self.text(x, bottom + 17, first_line, css="tick", anchor="middle")
            if second_line:
                self.text(x, bottom + 31, second_line, css="tick faint", anchor="middle")
        self.text(self.x.start_px - 24, bottom + 17, label, css="tick", anchor="end")

    def text(
        self, x_px: float, y_px: float, content: str, *, css: str, anchor: str = "start"
    ) -> None:
        """Writes a line of text at a position in pixels."""
        self._drawn.append(
            element("text", clean(content), x=x_px, y=y_px, css=css, text_anchor=anchor)
        )

    def line(self, runs: Iterable[Sequence[tuple[float, float]]], css: str) -> None:
        """Draws a line through points; each run is a piece of its own."""
        lines, dots = [], []
        for run in runs:
            points = [f"{_px(self.x.px(x))} {_px(self.y.px(y))}" for x, y in run]
            if len(points) == 1:
                dots.append(f"M{points[0]}L{points[0]}")
            elif points:
                lines.append("M" + "L".join(points))
        if lines:
            self._drawn.append(element("path", d="".join(lines), css=css))
        if dots:
            # Round ends make something of a line without a length.
            self._drawn.append(element("path", d="".join(dots), css=f"{css} dot"))

    def band(self, runs: Iterable[Sequence[tuple[float, float, float]]], css: str) -> None:
        """Fills the area between a low and a high value along x."""
        for run in runs:
            upper = [f"{_px(self.x.px(x))} {_px(self.y.px(high))}" for x, _, high in run]
            lower = [f"{_px(self.x.px(x))} {_px(self.y.px(low))}" for x, low, _ in reversed(run)]
            self._drawn.append(element("path", d=f"M{'L'.join(upper + lower)}Z", css=css))

    def box(
        self,
        x: tuple[float, float],
        y: tuple[float, float],
        css: str,
        title: str = "",
    ) -> None:
        """Draws a rectangle given in values, with an optional hover title."""
        left, right = self.x.px(x[0]), self.x.px(x[1])
        low, high = self.y.px(y[0]), self.y.px(y[1])
        self._drawn.append(
            element(
                "rect",
                *([element("title", clean(title))] if title else []),
                x=left,
                y=high,
                width=max(0.0, right - left),
                height=max(0.0, low - high),
                css=css,
            )
        )

    def rule(self, y: float, css: str, x: tuple[float, float] | None = None) -> None:
        """Draws a horizontal line at a value, across the panel or between two x values."""
        left, right = x if x is not None else (self.x.low, self.x.high)
        self._line(self.x.px(left), self.x.px(right), self.y.px(y), self.y.px(y), css)

    def column(self, x: float, css: str) -> None:
        """Draws a vertical line at a value, over the panel's height."""
        self._line(self.x.px(x), self.x.px(x), self.y.start_px, self.y.end_px, css)

    def _line(self, x1: float, x2: float, y1: float, y2: float, css: str) -> None:
        self._drawn.append(element("line", x1=x1, x2=x2, y1=y1, y2=y2, css=css))

    def hover(self, x: tuple[float, float], title: str) -> None:
        """Lays an invisible strip over the panel's height that shows a title under the pointer."""
        self.box(x, (self.y.low, self.y.high), "hover", title)

    def drawn(self) -> str:
        """Returns everything drawn so far, in order."""
        return "\n".join(self._drawn)


def drawing(height: float, label: str, panels: Sequence[Panel], width: float = WIDTH) -> str:
    """Wraps panels into one SVG element.

    Args:
        height: in pixels at this width; the drawing scales with the page.
        label: what the drawing shows, for those who cannot see it.
        panels: in the order in which they are painted.
        width: in pixels.

    Returns:
        The SVG element.
    """
    return element(
        "svg",
        *(panel.drawn() for panel in panels),
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        role="img",
        aria_label=label,
    )


def _px(value: float) -> str:
    text = f"{value:.1f}"
    return text.removesuffix(".0")
