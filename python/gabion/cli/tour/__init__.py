"""`gabion tour`: real records, kept in three ways, measured side by side, told on one page.

The parts, lowest first; each uses only those above it.

| module | what it holds |
|---|---|
| `failure` | the error that ends a tour with one clear line |
| `machine` | what the report says about this computer |
| `records` | a CSV or JSON Lines file as typed rows, spooled to disk |
| `flights` | the table that is taken when none is named |
| `stores` | the three ways to keep objects: a list, a dict of pickles, a pile |
| `result` | what was measured |
| `measure` | one store's measurement, run in a process of its own |
| `arrays` | NumPy's arithmetic with one source of memory, run in a process of its own |
| `runner` | starts those processes and shows their progress |
| `lanes` | pauses over time, as a row of characters |
| `picture` | the same as an SVG |
| `terminal` | the report in the terminal |
| `page` | the report as one HTML page |
| `command` | options in, exit code out |
"""
