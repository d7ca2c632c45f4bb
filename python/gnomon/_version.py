"""The package's version; the library must be of the same one (its C interface may differ otherwise)."""

__version__ = "0.1.0"
