"""The protocol of `burnish serve`."""
