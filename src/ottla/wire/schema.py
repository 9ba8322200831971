"""How messages are declared.

A message is a class and its annotated attributes are its fields, in the order of the wire:

    class TopicProduceData(Struct):
        name: String = ignorable("0-12", "")
        topic_id: Uuid = ignorable("13+", ZERO_UUID)
        partition_data: list[PartitionProduceData]

    class ProduceRequest(Request, api=apis.PRODUCE):
        transactional_id: String | None = None
        acks: Int16

A field may be null where its type says `| None`. One without a default must be given to the constructor.
Annotations are resolved, and constructors, readers and writers made, at first use: importing stays cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar, cast, dataclass_transform

from ottla.wire.apis import Api
from ottla.wire.errors import ProtocolError
from ottla.wire.parts import Buffer, Part
from ottla.wire.versions import ALWAYS, NEVER, Versions, parse_versions

T = TypeVar("T")

REQUIRED = object()
"""In place of a default: the constructor must be given the field."""


class FieldOptions(NamedTuple):
    """What a declaration says of a field beside its name and type."""

    default: object = REQUIRED
    versions: Versions = ALWAYS
    ignorable: bool = False
    nullable: Versions | None = None
    tag: int | None = None


def at(versions: str, default: T, *, nullable: str | None = None) -> T:
    """A field of some versions. In others only its default can be written: what matters is not lost silently.

    `nullable` narrows the versions in which it may be null.
    """
    return cast(T, FieldOptions(default, parse_versions(versions), nullable=_maybe(nullable)))


def ignorable(versions: str, default: T) -> T:
    """A field of some versions that the others may do without: there it is not written, whatever it holds."""
    return cast(T, FieldOptions(default, parse_versions(versions), ignorable=True))


def tagged(tag: int, versions: str, default: T, *, ignorable: bool = False, nullable: str | None = None) -> T:
    """A tagged field: written only when it is not its default.

    A tagged struct that is absent is None. `nullable` is for one that is also written as null, and is so always:
    to Kafka one that is absent is an empty one.
    """
    return cast(T, FieldOptions(default, parse_versions(versions), ignorable, _maybe(nullable), tag))


def _maybe(versions: str | None) -> Versions | None:
    return None if versions is None else parse_versions(versions)


@dataclass_transform(kw_only_default=True)
class _Declaration(type):
    """Turns the annotations of a class body into slots, and keeps what was declared for later."""

    declared: dict[str, tuple[str, FieldOptions]]

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> _Declaration:
        declared: dict[str, tuple[str, FieldOptions]] = {}
        for field, annotation in namespace.get("__annotations__", {}).items():
            if annotation.startswith("ClassVar"):
                continue
            default = namespace.pop(field, REQUIRED)
            if not isinstance(default, FieldOptions):
                default = FieldOptions(default)
            declared[field] = annotation, default
        namespace["__slots__"] = tuple(declared)
        namespace["declared"] = declared
        return super().__new__(mcls, name, bases, namespace, **options)


class Struct(metaclass=_Declaration):
    """A group of fields inside messages. Mutable, compared by value."""

    declared: ClassVar[dict[str, tuple[str, FieldOptions]]]
    repeats: ClassVar[bool] = False  # whether a list of them often stands in many places of a message
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, *args: Any, **fields: Any) -> None:
        cls = type(self)
        _make_constructor(cls)
        cls.__init__(self, *args, **fields)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, field) == getattr(other, field) for field in self.declared)

    def __repr__(self) -> str:
        shown = (f"{field}={_brief(getattr(self, field))}" for field in self.declared)
        return f"{type(self).__name__}({', '.join(shown)})"


def _brief(value: object) -> str:
    return f"<{value.nbytes} bytes>" if isinstance(value, memoryview) else repr(value)


def constructor_order(cls: type[Struct]) -> list[str]:
    """The fields in the order of the constructor's parameters: those without a default come first."""
    return sorted(cls.declared, key=lambda field: cls.declared[field][1].default is not REQUIRED)


def _make_constructor(cls: type[Struct]) -> None:
    """Gives the class an __init__ of its own, in place of the one that asked for it.

    It takes positions too, which readers use; everybody else goes by names, as the types demand.
    """
    parameters = ["self"]
    body = []
    names: dict[str, object] = {"_new": REQUIRED}
    for field in constructor_order(cls):
        default = cls.declared[field][1].default
        if default is REQUIRED:
            parameters.append(field)
        elif isinstance(default, list):
            parameters.append(f"{field}=_new")
        else:
            parameters.append(f"{field}=_default_{field}")
            names[f"_default_{field}"] = default
        value = f"[] if {field} is _new else {field}" if isinstance(default, list) else field
        body.append(f"    self.{field} = {value}")
    source = f"def __init__({', '.join(parameters)}):\n" + "\n".join(body or ["    pass"])
    exec(source, names)
    constructor = cast(Callable[..., None], names["__init__"])
    constructor.__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__init__ = constructor  # type: ignore[method-assign]


Reader: TypeAlias = Callable[[Buffer, int], tuple[Any, int]]
"""Reads a message that starts at a position; returns it and the position behind it."""

Writer: TypeAlias = Callable[[Any], list[Part]]

StepReader: TypeAlias = Callable[[Buffer, int], Generator[None, None, tuple[Any, int]]]
StepWriter: TypeAlias = Callable[[Any], Generator[None, None, list[Part]]]
"""The same as generators, for messages so large that others must be let in between."""


class _Readers(dict[int, Reader]):
    """A message's readers by version, each compiled when it is first asked for."""

    def __init__(self, message: type[Message]) -> None:
        self.message = message

    def __missing__(self, version: int) -> Reader:
        if version not in self.message.versions:
            raise ProtocolError(f"{self.message.__name__} has no version {version}")
        from ottla.wire.reader import compile_reader

        reader = self[version] = compile_reader(self.message, version)
        return reader


class _Writers(dict[int, Writer]):
    """A message's writers by version, each compiled when it is first asked for."""

    def __init__(self, message: type[Message]) -> None:
        self.message = message

    def __missing__(self, version: int) -> Writer:
        if version not in self.message.versions:
            raise ValueError(f"{self.message.__name__} has no version {version}")
        from ottla.wire.writer import compile_writer

        writer = self[version] = compile_writer(self.message, version)
        return writer


class _StepReaders(dict[int, StepReader]):
    def __init__(self, message: type[Message]) -> None:
        self.message = message

    def __missing__(self, version: int) -> StepReader:
        if version not in self.message.versions:
            raise ProtocolError(f"{self.message.__name__} has no version {version}")
        from ottla.wire.reader import compile_step_reader

        reader = self[version] = compile_step_reader(self.message, version)
        return reader


class _StepWriters(dict[int, StepWriter]):
    def __init__(self, message: type[Message]) -> None:
        self.message = message

    def __missing__(self, version: int) -> StepWriter:
        if version not in self.message.versions:
            raise ValueError(f"{self.message.__name__} has no version {version}")
        from ottla.wire.writer import compile_step_writer

        writer = self[version] = compile_step_writer(self.message, version)
        return writer


class Message(Struct):
    """What can be read and written as a whole, in its versions."""

    versions: ClassVar[Versions] = NEVER
    flexible: ClassVar[Versions] = NEVER
    readers: ClassVar[dict[int, Reader]]
    writers: ClassVar[dict[int, Writer]]
    step_readers: ClassVar[dict[int, StepReader]]
    step_writers: ClassVar[dict[int, StepWriter]]

    def __init_subclass__(cls, *, versions: str = "", flexible: str = "", **options: Any) -> None:
        super().__init_subclass__(**options)
        if versions:
            cls.versions = parse_versions(versions)
        if flexible:
            cls.flexible = parse_versions(flexible)
        cls.readers = _Readers(cls)
        cls.writers = _Writers(cls)
        cls.step_readers = _StepReaders(cls)
        cls.step_writers = _StepWriters(cls)


class _Exchanged(Message):
    """A message that belongs to an API and has its versions."""

    api: ClassVar[Api]

    def __init_subclass__(cls, *, api: Api | None = None, **options: Any) -> None:
        if api is not None:
            cls.api = api
            options["versions"] = f"{api.least_served}-{api.highest}"
            options["flexible"] = f"{api.flexible}+"
        super().__init_subclass__(**options)


class Request(_Exchanged):
    pass


class Response(_Exchanged):
    pass
