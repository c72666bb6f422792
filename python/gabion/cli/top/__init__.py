"""`gabion top`: what processes hold, as it changes.

The parts, lowest first; each uses only those above it.

| module | what it holds |
|---|---|
| `asking` | who can be asked, and what they say |
| `screen` | what they say, as a reader sees it |
| `command` | options in, exit code out |
"""
