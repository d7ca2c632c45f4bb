"""What can go wrong, by whose fault it is: the same three kinds as the library's own."""


class GnomonError(Exception):
    """Base of all errors that Gnomon raises."""


class CallerError(GnomonError, ValueError):
    """The arguments were wrong; nothing ran. The message says what was expected, what came and what to do."""


class EnvironmentError_(GnomonError, RuntimeError):
    """Memory, files, libraries or devices; the name's last letter keeps Python's own alias of OSError apart."""


class InternalError(GnomonError, RuntimeError):
    """A bug in Gnomon."""


class NotRecognised(Exception):
    """Raised by an adapter: this module, or this call of it, is not exactly what the library computes.

    Never reaches the caller: the module's own forward answers instead, the reason is logged once and kept for
    `gnomon.explain`.
    """


def expect(condition: object, reason: str) -> None:
    """For adapters: raises NotRecognised with the reason unless the condition holds."""
    if not condition:
        raise NotRecognised(reason)
