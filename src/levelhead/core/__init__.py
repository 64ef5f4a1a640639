"""The basis of all rooms: what a head is, and the arithmetic on counts and logits. Needs numpy only.

`head`, `counts`, `labels`, `logits`, `curve` and `measure` are the nouns; `array`, `per_class` and `errors` what they
share; `atomic` and `regular_file` write and read files; `extras` and `study` find libraries that may be missing.
"""
