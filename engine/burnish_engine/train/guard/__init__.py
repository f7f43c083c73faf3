"""Is it really training? Looks at a run before, while and after it trains, and says what is wrong in one verdict."""
