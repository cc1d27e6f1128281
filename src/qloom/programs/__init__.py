"""Programs that come with qloom, and how programs are found: by name, as a Python file, or as a job file."""
