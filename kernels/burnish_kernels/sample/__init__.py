"""The choice of each reply's next token on the device, and the record of what the replies have become."""
