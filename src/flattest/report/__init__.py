"""Store → one self-contained HTML page: no network, opens from disk; or the same page, live.

`reader` reads the store into plain data, `document` puts data, styles and scripts into one file,
`server` shows it while runs go on. The data travel as compressed JSON and are put on the page as
text, never as markup.
"""
