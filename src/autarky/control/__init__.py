"""What keeps a cluster in its desired state: one folder per subject, all with the same layout.

- `decide`: pure. Takes what is wanted and what was observed; returns actions, memory and one sentence.
- `manifests`: pure. Objects, files and certificate specifications.
- `observe`, `act`: I/O through ports; used by `up` and by the agents.
- `node`, `operator`: what the node agent and the operator do for the subject, mainly their controllers.

A part is a module, or a package where it is long. `base` is what controllers share; `common` has pure functions that
the decisions of several subjects use.

Contract: `decide` and `manifests` know the model, the renderers and each other, and
do no I/O; only `agents` and the tests import `node` and `operator` of a subject from outside of `control`.
"""
