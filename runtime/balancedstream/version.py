"""The one place of the version: wheel and package take it from here, and a test compares the rest.

The rest is the chart, the images' labels and tags, the docs and the changelog.
"""

__version__ = "0.1.0"
