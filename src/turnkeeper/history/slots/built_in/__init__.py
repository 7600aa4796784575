"""The built-in slots, a module each, and nothing else: the generator reads this folder (see `..generator`).

A module is named after the id of the slot it exports as `SLOT`: without a family's `:*`, with `_` for `-`, and with a
`_` at the end where the name is a word of Python (`global_`). A module may export `SLOTS` instead, a list whose ids all
begin with the module's name and a dot.
"""
