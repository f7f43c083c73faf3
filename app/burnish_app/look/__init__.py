"""The studio's appearance: colors, type sizes, spacing and icons."""
