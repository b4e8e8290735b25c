"""Data larger than memory: fields that stay in their file and are gone through some samples at a time."""

from keyhole.workflow.stored.opening import open_store
from keyhole.workflow.stored.pipeline import samples_of, select_stored
from keyhole.workflow.stored.store import Part, Store

__all__ = ["Part", "Store", "open_store", "samples_of", "select_stored"]
