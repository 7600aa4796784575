"""The primitives everything above reduces to; each is built once, when the first room needs it."""
