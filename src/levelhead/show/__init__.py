"""What is shown to people, as text, HTML and pictures.

style: names, tables, curves and results as text and HTML, without any library
plot: pictures with matplotlib

Functions here take plain numbers, names and `Curve`s, and know neither rules nor metrics: `Tuned.plot`,
`GammaPath.plot` and `levelhead inspect` pass what they have. So this room stands below core, and
whatever looks the same in two places is drawn by one function.
"""
