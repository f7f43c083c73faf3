"""The parts that both engines share: engine protocol, stream of micro-batches, schedules, random states."""
