"""Activation offloading to page-locked host memory, and the copies between host and device."""
