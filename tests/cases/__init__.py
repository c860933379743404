"""The end-to-end cases: which there are, when each passed last, and which of them a run takes.

A case is one test id below tests/e2e. Each has a small file in `records/`, written by runs by hand and committed with
the change; `./run cases` shows and corrects them (CONTRIBUTING.md, "Cases"). Deciding is pure (`rotation`, `shards`,
`checks`); the rest looks at pytest, git, the store and the clock.
"""
