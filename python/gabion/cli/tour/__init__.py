"""`gabion tour`: real records, kept in three ways, measured side by side; then arrays, images and a cache; told
on one page.

The parts, lowest first; each uses only those above it.

| module | what it holds |
|---|---|
| `failure` | the error that ends a tour with one clear line |
| `machine` | what the report says about this computer |
| `records` | a CSV or JSON Lines file as typed rows, spooled to disk |
| `flights` | the table that is taken when none is named |
| `stores` | the three ways to keep objects: a list, a dict of pickles, a pile |
| `photos` | the pictures of a folder, or made-up ones |
| `requests` | recorded requests to a cache, or those of the table |
| `result` | what was measured |
| `measure` | one store's measurement, run in a process of its own |
| `arrays` | NumPy's arithmetic with one source of memory, run in a process of its own |
| `images` | thumbnails of the pictures by one library, run in a process of its own |
| `caches` | a cache of pages under the requests, run in a process of its own |
| `runner` | starts those processes and shows their progress |
| `lanes` | pauses over time, as a row of characters |
| `drawing` | SVG in the page's colours |
| `picture` | pauses over time as such a picture |
| `curves` | what the cache did as such a picture |
| `sheet` | thumbnails side by side |
| `terminal` | the report in the terminal |
| `page` | the report as one HTML page |
| `command` | options in, exit code out |
"""
