"""The benchmarks are a package in scripts/."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
