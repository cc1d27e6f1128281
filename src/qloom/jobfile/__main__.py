"""Print the JSON schema: `python -m qloom.jobfile > docs/reference/jobfile.schema.json`."""

from __future__ import annotations

import json
import sys

from qloom.jobfile.model import jobfile_schema

json.dump(jobfile_schema(), sys.stdout, indent=2)
sys.stdout.write("\n")
