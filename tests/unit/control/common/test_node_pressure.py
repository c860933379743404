from __future__ import annotations

import pytest

from autarky.control.common.pods import pressure


def a_node(**conditions):
    reported = [{"type": name, "status": status, "message": f"about {name}"} for name, status in conditions.items()]
    return {"metadata": {"name": "n1"}, "status": {"conditions": reported}}


@pytest.mark.parametrize(
    ("node", "text"),
    [
        ({"metadata": {"name": "n1"}}, ""),
        (a_node(Ready="True", DiskPressure="False", MemoryPressure="Unknown"), ""),
        (a_node(Ready="True", DiskPressure="True"), "DiskPressure (about DiskPressure)"),
        (
            a_node(MemoryPressure="True", DiskPressure="True"),
            "MemoryPressure (about MemoryPressure), DiskPressure (about DiskPressure)",
        ),
    ],
)
def test_a_node_is_pressed_by_what_its_kubelet_says(node, text):
    assert pressure(node) == text


def test_of_what_a_kubelet_says_as_much_as_can_be_read_is_told():
    reported = [
        {"type": f"{'x' * 9000}{number}Pressure", "status": "True", "message": "9" * 10**6} for number in range(50)
    ]
    said = pressure({"metadata": {"name": "n1"}, "status": {"conditions": reported}})
    assert said.count("(999") == 3
    assert len(said) < 1300
