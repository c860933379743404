"""What keeps a cluster as it is wanted: a folder for each subject, all of one shape.

- `decide`: pure. What is wanted and what was seen go in; actions, memory and one sentence come out.
- `manifests`: pure. Objects, files and certificate specifications.
- `observe`, `act`: through ports; for `up` and the agents alike.
- `node`, `operator`: what either agent does for the subject, its controllers first.

A part is a module, or a package of modules where it is long. `base` is what controllers share, and `common` pure parts
that several subjects decide by. Contract: `decide` and `manifests` know the model, the renderers and each other, and
do no I/O; only `agents` and the tests import `node` and `operator` of a subject from outside of `control`.
"""
