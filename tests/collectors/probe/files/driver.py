"""Runs the file senses of the probe as a node's worker does; for any Python from 3.6.

Reads lines {"sense", "spec"} or {"sense", "slow"}: makes that sense or runs its operations, and prints what each says.
"""

import json
import sys

from collectors.probe.files import disks, logs, switches

SENSES = {"disks": disks.Disks, "logs": logs.Logs, "switches": switches.Switches}
made = {}
for line in iter(sys.stdin.readline, ""):
    request = json.loads(line)
    if "spec" in request:
        made[request["sense"]] = SENSES[request["sense"]](request["spec"])
        continue
    for name, operation in made[request["sense"]].operations(request["slow"]):
        print(json.dumps({"name": name, "said": operation() or []}), flush=True)
    print("{}", flush=True)
