"""Data larger than memory: fields that stay in their file and are gone through some samples at a time."""

from keyhole.stored.opening import open_store
from keyhole.stored.pipeline import samples_of, select_stored
from keyhole.stored.store import Part, Store

__all__ = ["Part", "Store", "open_store", "samples_of", "select_stored"]
