"""The picture: where things are on it, and that any viewer can read it."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from _timeline_lanes import IN_API, IS_READY, IS_SCHEDULED, STARTING, WAITING, Bar, Lane, Mark
from _timeline_svg import COLOURS, MARGIN, NAMES, PLOT, Picture, colour_of, draw, rows_of, stacked, tick_seconds
from _timeline_usage import COMPONENTS, RUNTIME, Step

SVG = "{http://www.w3.org/2000/svg}"
LEFT = MARGIN + NAMES


def picture(lanes=(), moments=(), steps=(), text=()):
    """Of ten seconds, the clock of which starts at the first."""
    return Picture("autarky: up", ["a note"], 101.0, 100.0, 110.0, lanes, moments, steps, 2, text)


def drawn(**parts):
    return ET.fromstring(draw(picture(**parts)))  # noqa: S314 # our own


def titled(root, words):
    """The shape whose title has these words."""
    (found,) = (shape for shape in root for title in shape.findall(f"{SVG}title") if words in (title.text or ""))
    return found


def span(shape):
    left, width = float(shape.get("x")), float(shape.get("width"))
    return left, left + width


def texts(root):
    return [text.text for text in root.iter(f"{SVG}text")]


def test_a_bar_lies_where_its_time_is_and_one_that_runs_on_ends_with_the_picture():
    bars = (Bar(102.0, 104.0, "being made", STARTING), Bar(104.0, None, "runs"))
    root = drawn(lanes=[Lane("n1", "etcd-n1", bars)])
    assert span(titled(root, "being made")) == pytest.approx((LEFT + 0.2 * PLOT, LEFT + 0.4 * PLOT))
    assert span(titled(root, "runs")) == pytest.approx((LEFT + 0.4 * PLOT, LEFT + PLOT))
    assert titled(root, "being made").get("fill-opacity") == "0.35"
    assert titled(root, "runs").find(f"{SVG}title").text == "runs: 3.00 s to the end"
    assert "1.0 → 3.0" in texts(root)


def test_what_began_before_the_picture_is_cut_at_its_edge_and_what_lies_outside_is_not_drawn():
    bars = (Bar(50.0, 60.0, "long ago"), Bar(90.0, 105.0, "before"), Bar(120.0, None, "after"))
    root = drawn(lanes=[Lane("n1", "kubelet", bars, (Mark(99.0, "outside"),))])
    assert span(titled(root, "before")) == pytest.approx((LEFT, LEFT + 0.5 * PLOT))
    assert not [text for text in root.itertext() if any(word in text for word in ("long ago", "after", "outside"))]


def test_marks_of_pods_differ_in_shape_and_others_are_named():
    marks = tuple(Mark(103.0, text) for text in (IN_API, IS_SCHEDULED, IS_READY, "/readyz of the hosted API server"))
    root = drawn(lanes=[Lane("n1", "etcd-n1", (), marks)])
    kinds = [(titled(root, mark.text).tag.removeprefix(SVG), titled(root, mark.text).get("class")) for mark in marks]
    assert kinds == [("path", "outline"), ("circle", "hollow outline"), ("circle", "mark"), ("path", "mark")]
    assert "/readyz of the hosted API server" in texts(root)


def test_moments_lie_over_all_lanes_and_are_named_with_their_seconds():
    root = drawn(lanes=[Lane("n1", "kubelet", (Bar(101, 102, ""),))], moments=[Mark(106.0, "/readyz")])
    assert titled(root, "/readyz").get("d").startswith(f"M{LEFT + 0.6 * PLOT:.1f} ")
    assert "/readyz 5.0 s" in texts(root)


def test_a_host_is_named_once_above_its_lanes():
    lanes = [Lane(where, name, (Bar(101, 102, ""),)) for where, name in (("n1", "a"), ("n1", "b"), ("n2", "c"))]
    heads = [text.text for text in drawn(lanes=lanes).iter(f"{SVG}text") if text.get("class") == "host"]
    assert heads == ["n1", "n2"]


def test_text_of_others_breaks_no_picture():
    name = '<script> & "it" \x00\x1b[31m'
    root = drawn(lanes=[Lane("n1", name, (Bar(101, 102, name),))], text=["a  table's  blanks"])
    assert '<script> & "it"   [31m' in [(text.text or "") for text in root.iter(f"{SVG}text")]
    (table,) = (text for text in root.iter(f"{SVG}text") if text.text == "a  table's  blanks")
    assert table.get("{http://www.w3.org/XML/1998/namespace}space") == "preserve"


def test_it_has_its_own_background_in_light_and_in_dark():
    root = drawn()
    style = root.find(f"{SVG}style").text
    light, _, dark = style.partition("@media (prefers-color-scheme: dark)")
    assert root.find(f"{SVG}rect").get("class") == "ground"
    assert all(".ground" in part and "text {" in part for part in (light, dark))


# --- parts ----------------------------------------------------------------------------------------


def test_labels_that_would_lie_over_each_other_get_rows_of_their_own():
    assert rows_of([(0, "long text here"), (20, "another"), (400, "far away"), (410, "near")]) == [0, 1, 0, 1]


@pytest.mark.parametrize(("seconds", "every"), [(9, 1), (25, 1), (26, 2), (60, 5), (200, 10), (400, 20)])
def test_the_axis_stays_legible(seconds, every):
    assert tick_seconds(seconds) == every


def test_components_stand_on_each_other_in_their_order_and_those_without_use_are_left_out():
    steps = [Step(0, 1, {"etcd": 0.5, "kubelet": 0.25}, None), Step(1, 2, {"kubelet": 1.0}, None)]
    assert stacked(steps, COMPONENTS) == {
        "etcd": [(0, 0.0, 0.5), (1, 0.0, 0.0)],
        "kubelet": [(0, 0.5, 0.75), (1, 0.0, 1.0)],
    }


def test_an_area_has_steps_and_the_time_that_something_waited_is_below():
    steps = [Step(101, 103, {"etcd": 1.0}, 0.5), Step(103, 105, {"etcd": 2.0}, None)]
    root = drawn(steps=steps)
    corners = titled(root, "etcd").get("d").strip("Mz").split("L")
    xs, ys = zip(*(map(float, corner.split()) for corner in corners), strict=True)
    edges = [LEFT + PLOT * share for share in (0.1, 0.3, 0.3, 0.5)]
    assert xs == pytest.approx([*edges, *reversed(edges)])
    floor = ys[-1]
    assert [floor - y for y in ys] == pytest.approx([110, 110, 220, 220, 0, 0, 0, 0])
    assert [path for path in root.iter(f"{SVG}path") if path.get("class") == "pressure"]
    assert "etcd" in texts(root)


def test_a_lane_has_the_colour_of_its_component():
    names = {"kube-apiserver-hosted-x": "kube-apiserver", "containerd": RUNTIME, "autarky-kubelet-slot": "kubelet"}
    assert {name: colour_of(Lane("n1", name)) for name in names} == {name: COLOURS[c] for name, c in names.items()}
    assert set(COLOURS) == set(COMPONENTS)


def test_a_wait_looks_like_none_of_the_components():
    root = drawn(lanes=[Lane("the command", "… etcd", (Bar(101, 102, "waits until", WAITING),))])
    assert titled(root, "waits until").get("class") == "waiting"
