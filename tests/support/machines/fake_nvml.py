"""A driver that answers as a test says, and that changes from second to second."""

# ruff: noqa: N802  NVML's names

from types import SimpleNamespace

from support.machines.replay import ReplayedError

GIB = 2**30
NOT_SUPPORTED = 3


class FakeNvml:
    """NVML's functions over a dictionary of each GPU; what is not in it is not supported.

    Keys: used, total (bytes), load (percent), temperature, energy (mJ), power (mW), clock, memory_clock, reasons,
    rx, tx (KB/s), generation, width, processes [(pid, bytes)].
    """

    NVMLError = ReplayedError

    def __init__(self, *gpus, broken=False):
        self.gpus, self.broken, self.open, self.inits = list(gpus), broken, 0, 0

    def _value(self, index, key):
        if self.broken:
            raise ReplayedError(15, "GPU is lost")
        if key not in self.gpus[index]:
            raise ReplayedError(NOT_SUPPORTED, "Not Supported")
        return self.gpus[index][key]

    def nvmlInit(self):
        self.open += 1
        self.inits += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid):
        return int(str(uuid).rpartition("-")[2])

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetMemoryInfo(self, index):
        used, total = self._value(index, "used"), self.gpus[index].get("total", 24 * GIB)
        return SimpleNamespace(used=used, total=total, free=total - used)

    def nvmlDeviceGetUtilizationRates(self, index):
        return SimpleNamespace(gpu=self._value(index, "load"), memory=0)

    def nvmlDeviceGetTemperature(self, index, _sensor):
        return self._value(index, "temperature")

    def nvmlDeviceGetTotalEnergyConsumption(self, index):
        return self._value(index, "energy")

    def nvmlDeviceGetPowerUsage(self, index):
        return self._value(index, "power")

    def nvmlDeviceGetClockInfo(self, index, kind):
        return self._value(index, {1: "clock", 2: "memory_clock"}[kind])

    def nvmlDeviceGetFanSpeed(self, index):
        return self._value(index, "fan")

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, index):
        return self._value(index, "reasons")

    def nvmlDeviceGetPcieThroughput(self, index, counter):
        return self._value(index, {0: "tx", 1: "rx"}[counter])

    def nvmlDeviceGetCurrPcieLinkGeneration(self, index):
        return self._value(index, "generation")

    def nvmlDeviceGetCurrPcieLinkWidth(self, index):
        return self._value(index, "width")

    def nvmlDeviceGetComputeRunningProcesses(self, index):
        return [SimpleNamespace(pid=pid, usedGpuMemory=count) for pid, count in self._value(index, "processes")]
