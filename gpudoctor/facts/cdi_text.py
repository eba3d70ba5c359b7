"""Text as the CDI library reads it: one YAML document, of which sigs.k8s.io/yaml makes JSON, strictly decoded into Go's types.

JSON is YAML there, so a comma before a closing bracket is no fault. Unlike other YAML readers this one refuses a key that is given twice;
words and numbers become strings where a string is wanted (`name: 0`); names of fields match in any case (encoding/json). Plain scalars
are resolved as go-yaml v2 does (resolve.go): 0666 is octal, yes and on are true. Only the first document is read.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from gpudoctor.facts.config_text import Malformed, well_formed
from gpudoctor.facts.raw import TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Unread, Why


class Fault(Exception):
    """What makes the library refuse the whole file, and the node of the document where it is."""

    def __init__(self, said: str, node: Any) -> None:
        super().__init__(said)
        self.node = node


class Place(Struct, frozen=True):
    """Where something stands in a file, from 1."""

    line: int
    column: int


Plain: TypeAlias = str | int | float | bool | None
Decoder: TypeAlias = Callable[[Any, "Reader"], Any]
_DEEPEST = 32


class Reader(Struct):
    """What is noticed while a document is decoded: the fields that are there, each with its first place, and those that hold something."""

    used: dict[tuple[str, str], Place] = {}
    filled: set[tuple[str, str]] = set()


def decode(file: TextFile, decoder: Decoder) -> tuple[Any, Reader] | Malformed | Unread:
    """The value of a file's first document and the fields it uses, or what its reader refuses, with line and column."""
    import yaml

    if file.truncated:
        return Unread(Why.NOT_RECORDED, file.where, "only its beginning was kept")
    reader = Reader()
    try:
        root = _document(file.text.removeprefix("\ufeff"))
        if root is None or _is_null(root):
            return Malformed(file.where, 0, 0, "holds nothing")
        return decoder(root, reader), reader
    except Fault as fault:
        mark = fault.node.start_mark
        return _malformed(file, mark.line + 1, mark.column + 1, str(fault))
    except yaml.MarkedYAMLError as error:
        place = error.problem_mark or error.context_mark
        line, column = (place.line + 1, place.column + 1) if place is not None else (0, 0)
        return _malformed(file, line, column, error.problem or error.context or "cannot be parsed")
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return _malformed(file, 0, 0, " ".join(str(error).split()))


def _document(text: str) -> Any:
    """The first document's nodes, every untagged scalar as a string."""
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # one of two classes, by how PyYAML was built
        yaml_implicit_resolvers: Mapping[str, Any] = {}

    loader = Loader(text)
    try:
        return loader.get_node() if loader.check_node() else None
    finally:
        loader.dispose()


def _malformed(file: TextFile, line: int, column: int, said: str) -> Malformed:
    lines = file.text.splitlines()
    text = lines[line - 1] if 0 < line <= len(lines) else ""
    return Malformed(file.where, line, column, well_formed(said), well_formed(text))


# Kinds of values -----------------------------------------------------------------------------------------------------


def place_of(node: Any) -> Place:
    """Where a node begins."""
    return Place(node.start_mark.line + 1, node.start_mark.column + 1)


def text(node: Any, _: Reader) -> str:
    """A Go string: numbers and words are taken as well."""
    match _scalar(node, "string"):
        case None:
            return ""
        case bool() as word:
            return "true" if word else "false"
        case float() as number:
            return repr(number)
        case value:
            return str(value)


def whole(lowest: int, highest: int, name: str) -> Decoder:
    """One of Go's integers; a float without a fraction is one in JSON, too."""

    def decoder(node: Any, _: Reader) -> int | None:
        value = _scalar(node, name)
        if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
            value = int(value)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise Fault(f"cannot unmarshal {_kind(value)} into a field of type {name}", node)
        if not lowest <= value <= highest:
            raise Fault(f"cannot unmarshal number {value} into a field of type {name}", node)
        return value

    return decoder


def truth(node: Any, _: Reader) -> bool:
    """A Go bool."""
    value = _scalar(node, "bool")
    if value is not None and not isinstance(value, bool):
        raise Fault(f"cannot unmarshal {_kind(value)} into a field of type bool", node)
    return bool(value)


def each(decoder: Decoder) -> Decoder:
    """A Go slice."""

    def decode_all(node: Any, reader: Reader) -> tuple[Any, ...]:
        if _is_null(node):
            return ()
        if node.id != "sequence":
            raise Fault(f"cannot unmarshal {_form(node)} into a list", node)
        return tuple(decoder(item, reader) for item in node.value)

    return decode_all


def words_by_name(node: Any, reader: Reader) -> dict[str, str]:
    """A Go map of strings."""
    return {name: text(value, reader) for name, _, value in _pairs(node)}


def fields(owner: str, known: Mapping[str, Decoder], build: Callable[[dict[str, Any], Place], Any]) -> Decoder:
    """A Go struct: a field that it does not have is refused, one that it has is noted under the owner's name."""
    folded = {name.lower(): name for name in known}

    def decoder(node: Any, reader: Reader) -> Any:
        values: dict[str, Any] = {}
        if not _is_null(node):
            for key, key_node, value in _pairs(node):
                name = key if key in known else folded.get(key.lower())
                if name is None:
                    raise Fault(f'unknown field "{key}"', key_node)
                values[name] = known[name](value, reader)
                reader.used.setdefault((owner, name), place_of(key_node))
                if values[name]:
                    reader.filled.add((owner, name))
        return build(values, place_of(node))

    return decoder


def _pairs(node: Any, depth: int = 0) -> Iterator[tuple[str, Any, Any]]:
    """Keys and values with those merged by `<<`; a key that is there twice is refused."""
    if node.id != "mapping":
        raise Fault(f"cannot unmarshal {_form(node)} into an object", node)
    seen: set[str] = set()
    for key, key_node, value in _all_pairs(node, depth):
        if key in seen:
            raise Fault(f'key "{key}" already set in map', key_node)
        seen.add(key)
        yield key, key_node, value


def _all_pairs(node: Any, depth: int) -> Iterator[tuple[str, Any, Any]]:
    if depth > _DEEPEST:
        raise Fault("holds itself", node)
    for key, value in node.value:
        if key.id == "scalar" and key.value == "<<" and not key.style:
            merged = value.value if value.id == "sequence" else [value]
            for one in merged:
                yield from _pairs(one, depth + 1)
        else:
            yield _key(key), key, value


def _key(node: Any) -> str:
    value = _scalar(node, "key")
    if value is None:
        raise Fault("unsupported map key: null", node)
    return text(node, Reader())


# Scalars -------------------------------------------------------------------------------------------------------------

_NULLS = ("", "~", "null", "Null", "NULL")
_TRUE = ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON")
_FALSE = ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF")
_CONSTANTS: dict[str, Plain] = {**dict.fromkeys(_NULLS), **dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)}
_TYPED = tuple(f"tag:yaml.org,2002:{name}" for name in ("int", "float", "bool"))
_FLOAT = pattern(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INTEGER = pattern(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]*)|([1-9][0-9]*))")


def _is_null(node: Any) -> bool:
    return node.id == "scalar" and not node.style and node.value in _NULLS


def _scalar(node: Any, wanted: str) -> Plain:
    if node.id != "scalar":
        raise Fault(f"cannot unmarshal {_form(node)} into a field of type {wanted}", node)
    quoted = node.style and node.tag not in _TYPED
    return node.value if quoted else _resolved(node.value)


def _resolved(plain: str) -> Plain:
    """A plain scalar as go-yaml v2 resolves it; a time stays text for whoever wants a string."""
    if plain in _CONSTANTS:
        return _CONSTANTS[plain]
    if plain[0] not in "0123456789+-.":
        return plain
    digits = plain.replace("_", "")
    number = _INTEGER.fullmatch(digits)
    if number is not None:
        sign, hexadecimal, binary, octal, decimal = number.groups()
        for part, base in ((hexadecimal, 16), (binary, 2), (decimal, 10)):
            if part:
                return int(f"{sign}{part}", base)
        return int(f"{sign}{octal or 0}", 8)
    if _FLOAT.fullmatch(digits):
        return float(digits)
    return plain


def _kind(value: Plain) -> str:
    return "bool" if isinstance(value, bool) else "string" if isinstance(value, str) else f"number {value}"


def _form(node: Any) -> str:
    return {"sequence": "array", "mapping": "object"}.get(node.id, "string")
