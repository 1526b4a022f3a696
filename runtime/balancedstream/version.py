"""The one place of the version: the wheel, the images, the chart and the docs follow it."""

__version__ = "0.1.0"
