"""What we call the newest committed checkpoint, as a trainer that resumes prints it: python resuming.py FOLDER."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.trainmon.analysis.checkpoints.reading import read

if __name__ == "__main__":
    newest = read(Path(sys.argv[1]), time.time(), is_running=False).committed
    print(f"resumed from step {0 if newest is None or newest.step is None else newest.step}")
