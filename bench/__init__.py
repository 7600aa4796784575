"""The benchmark: the unchanged floor and us, doing the same work in one run."""
