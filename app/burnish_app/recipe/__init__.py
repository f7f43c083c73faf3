"""The fields of the recipe form, which of them are relevant, and merging suggestions. No Qt."""
