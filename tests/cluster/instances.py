# SPDX-License-Identifier: Apache-2.0
"""The test cluster's node with cards in MIG mode."""

from support import *

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests/node"))
from mig import IDS, Mig  # noqa: E402

NODE_CONFIG = WORK / "node-config.json"
PLUGIN = WORK / "programs/hami-device-plugin.json"


class Sim:
    path = programs.SIM


def mig():
    return Mig(Sim, programs.SIMDRIVER)


def registered_cards():
    return json.loads(node_register() or "[]")


@contextlib.contextmanager
def node(node_config, arguments=(), cut=None, gpus=2):
    """A100 of 40 GB, and a plugin with another configuration."""
    before = NODE_CONFIG.read_text(), PLUGIN.read_text()
    try:
        with held("hami-device-plugin", "hami-vgpu-monitor"):
            make_machine(gpus, "40960Mi")
            if cut:
                with mig() as found:
                    cut(found)
            NODE_CONFIG.write_text(json.dumps({"nodeconfig": [node_config | {"name": NODE}] if node_config else []}))
            spec = json.loads(before[1])
            spec["argv"] += list(arguments)
            PLUGIN.with_suffix(".held").write_text(json.dumps(spec))
        yield
    finally:
        with held("hami-device-plugin", "hami-vgpu-monitor"):
            make_machine(1, f"{CARD_MIB}Mi")
            NODE_CONFIG.write_text(before[0])
            PLUGIN.with_suffix(".held").write_text(before[1])
