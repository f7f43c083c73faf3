"""A frozen projection with low-rank adapters: the skinny products beside the one large one."""
