"""`gabion thumbnails`: thumbnails of many pictures, in as many threads as there are processors, in bounded memory.

The parts, lowest first; each uses only those above it.

| module | what it holds |
|---|---|
| `plan` | which files become which |
| `work` | threads that make them, and what came of it |
| `command` | options in, exit code out |
"""
