"""Everything that leaves or enters a store as a whole: exports, imports, snapshots, saves, backup.

Readers of foreign files are pure: bytes in, the frozen structs of `imported` out. They open no store, ask no clock and
touch no network; landing what they read is another module's work.
"""
