"""JSON by the interpreter's own C code, without the json package: that imports re, which is 1 MiB on every node."""

import os

try:
    from _json import encode_basestring_ascii, make_encoder, make_scanner
except ImportError:  # an interpreter without the accelerator, such as PyPy
    import json

    def encoded(value: object) -> str:
        return json.dumps(value, separators=(",", ":"))

    def decoded(text: str) -> object:
        return json.loads(text)

else:

    def _refuse(value: object) -> object:
        raise TypeError("%s is no JSON" % type(value))

    _encode = make_encoder(None, _refuse, encode_basestring_ascii, None, ":", ",", False, False, False)
    # The defaults of json.JSONDecoder.
    _scan = make_scanner(
        type(
            "Context",
            (),
            {
                "strict": True,
                "object_hook": None,
                "object_pairs_hook": None,
                "array_hook": None,
                "parse_float": float,
                "parse_int": int,
                "parse_constant": None,
                "memo": {},
            },
        )()
    )

    def encoded(value: object) -> str:
        """One line of JSON, ASCII only: whatever the node's locale is."""
        return "".join(_encode(value, 0))

    def decoded(text: str) -> object:
        """The value that the text begins with.

        Raises:
            ValueError: when it is not JSON.
        """
        try:
            return _scan(text, 0)[0]
        except (StopIteration, SystemError) as error:  # 3.10 and 3.11 look for json.decoder to raise its error
            raise ValueError("not JSON") from error


def write(data: bytes) -> None:
    """Write all of it to standard output."""
    while data:
        data = data[os.write(1, data) :]
