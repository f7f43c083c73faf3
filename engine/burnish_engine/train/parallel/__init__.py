"""Data parallel: several processes, each with the whole model, share the passes of every optimizer step.

One of them, the leader (rank 0), is the run as it always is: session, events, checkpoints, evaluation, commands. The
others hold a replica of its engine and do as it says. A step, and the file of each part:

    leader: "step" to all ranks                            # leading_engine.py; link.py: messages over sockets
    each rank: lay out and run its own passes              # exchange/deal.py: which; train/fast/ as ever
    each rank: "ready", or what went wrong                 # exchange/rank_exchange.py
    leader: "exchange" to all, or "abandon"                # ranks.py: also notices that a process died
    each rank: sum gradients and losses over all ranks     # exchange/collectives.py: NCCL or gloo
    each rank: clip, update                                # the same bits on each; unlike GPUs take the leader's

The gradients may be summed in slices while the last pass continues (exchange_choice.py), or rounded
(exchange/rounded_sum.py). The passes of an evaluation are dealt likewise (evaluation_share.py). A whole model is not
held by each rank but shared out over all (sharded_engine.py); so may be the frozen weights of layers, which each rank
then reads from the others without their doing (exchange/windows.py), so that only loading takes all at once.

Before its first step, and wherever the leader begins anew (a checkpoint, a rollback, a smaller plan), it sends weights
and optimizer state to all, so that only the leader has to know how they came about.
"""
