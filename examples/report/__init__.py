"""A daily report: read a git repository, let a model write, check it, keep it, publish it once."""
