"""The generated modules are those of their .proto files: a change of one without the other is found here."""

from __future__ import annotations

import re
from importlib import resources
from types import ModuleType

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from autarky.cri import containerd_pb2, runtime_pb2

_TYPES = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_UINT64: "uint64",
}


@pytest.mark.parametrize(("name", "module"), [("runtime", runtime_pb2), ("containerd", containerd_pb2)])
def test_a_generated_module_is_that_of_its_proto(name: str, module: ModuleType) -> None:
    text = re.sub(r"//.*", "", resources.files("autarky.cri").joinpath(f"{name}.proto").read_text())
    written = {kind_and_name: _members(body) for kind_and_name, body in _blocks(text)}
    file = module.DESCRIPTOR
    generated = {f"message {m.name}": _fields(m) for m in file.message_types_by_name.values()}
    generated |= {f"enum {e.name}": _values(e) for e in file.enum_types_by_name.values()}
    assert written == generated
    assert f"package {file.package};" in text


def _blocks(text: str) -> list[tuple[str, str]]:
    return re.findall(r"((?:message|enum) \w+) \{(.*?)\}", text, flags=re.DOTALL)


def _members(body: str) -> set[str]:
    return {" ".join(member.split()) for member in body.split(";") if member.strip()}


def _fields(message: Descriptor) -> set[str]:
    return {f"{_type(field)} {field.name} = {field.number}" for field in message.fields}


def _type(field: FieldDescriptor) -> str:
    kind = field.message_type or field.enum_type
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields
        return f"map<{_type(key)}, {_type(value)}>"
    name = kind.name if kind is not None else _TYPES[field.type]
    return f"repeated {name}" if field.is_repeated else name


def _values(enum: EnumDescriptor) -> set[str]:
    return {f"{value.name} = {value.number}" for value in enum.values}
