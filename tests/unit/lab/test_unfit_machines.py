"""Machines that can have no test hosts are refused before anything is made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import autarky
from autarky.lab.tools import refuse_chroot

OWN_NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")
"""Ours to mount in, whoever we are."""

# The interpreter's directories and the system's, at their paths below another root.
IN_A_CHROOT = """\
set -eu
for directory in "$@" /usr /proc /dev; do
  mkdir -p "$ROOT$directory"
  mount --rbind "$directory" "$ROOT$directory"
done
for name in bin lib lib64; do ln -s "usr/$name" "$ROOT/$name"; done
exec chroot "$ROOT" "$PYTHON" -c "$PROGRAM"
"""
PROGRAM = """\
import asyncio
from autarky.lab.tools import refuse_chroot
asyncio.run(refuse_chroot())
"""


async def test_a_namespace_whose_root_is_ours_is_fit():
    await refuse_chroot()


def test_a_chroot_is_refused_because_it_would_let_commands_out(tmp_path):
    source = Path(autarky.__file__).parents[1]
    done = subprocess.run(
        [*OWN_NAMESPACE, "sh", "-c", IN_A_CHROOT, "sh", sys.prefix, sys.base_prefix, str(source)],
        env={
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "ROOT": str(tmp_path),
            "PYTHON": sys.executable,
            "PYTHONPATH": str(source),
            "PROGRAM": PROGRAM,
        },
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert "this is a chroot" in done.stderr
    assert done.returncode == 1
