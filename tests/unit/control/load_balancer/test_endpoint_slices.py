"""The EndpointSlice as it is written, and as it is read back, whoever wrote it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autarky.control.load_balancer.manifests.endpoints import kubernetes_slice, slice_endpoints
from autarky.model.endpoint import Endpoint

ENDPOINTS = st.builds(Endpoint, st.sampled_from(["n1", "n2"]), st.just("192.0.2.1"), st.booleans(), st.booleans())


@given(st.lists(ENDPOINTS))
def test_what_is_written_is_read_back(found):
    assert slice_endpoints(kubernetes_slice(found)) == tuple(found)


@pytest.mark.parametrize("conditions", [None, {}, {"ready": None}, {"ready": True, "serving": None}])
def test_what_is_not_said_is_true_as_in_the_api(conditions):
    live = {"endpoints": [{"addresses": ["192.0.2.1"], "nodeName": "n1", "conditions": conditions}]}
    assert slice_endpoints(live) == (Endpoint("n1", "192.0.2.1", ready=True),)


@pytest.mark.parametrize("live", [{}, {"endpoints": None}, {"endpoints": [{"addresses": []}]}])
def test_a_slice_that_says_nothing_has_no_endpoints(live):
    assert slice_endpoints(live) == ()
