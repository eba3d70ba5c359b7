"""The configuration of a custom plugin of the node-problem-detector: one condition for each link, answered from the last look.

pkg/custompluginmonitor/types/config.go of kubernetes/node-problem-detector 6632ca67: rules with `type` permanent set the condition that
they name; its status follows the exit code, 0 False, 1 True, else Unknown; `conditions` holds what each is while nothing is wrong.
"""

import json

from gpudoctor.chain import Link
from gpudoctor.installing.files import File, Installation
from gpudoctor.installing.node import InstallNode

PATH = "/etc/node-problem-detector/gpudoctor.json"
NO_CONDITION = (Link.CUDA_INIT, Link.WORKLOAD)
"""No check asks about the first, and a workload's own faults say nothing of its node."""
LINKS = tuple(link for link in Link if link not in NO_CONDITION)
_NAMES = {Link.PCIE: "Pcie", Link.DRIVER_CUDA: "DriverCuda"}


def condition(link: Link) -> str:
    """The type of a link's condition, such as GpuDeviceNodesBroken: True is a problem, as with all that the detector sets."""
    return f"Gpu{_name(link)}Broken"


def npd(node: InstallNode) -> Installation:
    """One file, to be named on the detector's command line."""
    settings = {
        "plugin": "custom",
        "source": "gpudoctor",
        "pluginConfig": {
            "invoke_interval": "1m",
            "timeout": "5s",
            "max_output_length": 80,
            "concurrency": 1,
            "enable_message_change_based_condition_update": True,
        },
        "metricsReporting": True,
        "conditions": [
            {
                "type": condition(link),
                "reason": f"Gpu{_name(link)}Whole",
                "message": f"the link {link.value} is not broken",
            }
            for link in LINKS
        ],
        "rules": [
            {
                "type": "permanent",
                "condition": condition(link),
                "reason": f"Gpu{_name(link)}Fault",
                "path": node.command,
                "args": ["health", "--cached", "--link", link.value, "--format", "npd"],
                "timeout": "5s",
            }
            for link in LINKS
        ],
    }
    return Installation(
        kind="npd",
        files=(File(PATH, json.dumps(settings, indent=2) + "\n"),),
        install=(
            f"add --config.custom-plugin-monitor={PATH} to the node-problem-detector's command line, and restart it",
        ),
        undo=(f"take --config.custom-plugin-monitor={PATH} off again, and restart it", f"rm {PATH}"),
        notes=(
            "it answers from the last look, which the timer or cron's line makes: install one of these first",
            "a detector in a pod needs the doctor, its Python and its state in its own file system",
            *node.notes,
        ),
    )


def _name(link: Link) -> str:
    return _NAMES.get(link, link.value.title().replace("-", ""))
