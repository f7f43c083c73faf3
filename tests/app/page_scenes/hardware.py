"""Scenes of Hardware."""

from app.facts import machine_facts as machines
from app.facts.run_summaries import summary
from app.page_scenes.answers import failure, result
from app.page_scenes.screenshots import scene, settle
from PySide6.QtWidgets import QScrollArea

from support.machines.hardware import made_up


@scene("hardware-busy")
def hardware_busy(window):
    window.page("hardware").shown()


def _hardware(window, checkup, what_fits=None):
    page = window.page("hardware")
    page._fits_found(result(what_fits=what_fits or machines.what_fits()))
    window.client.give_up("doctor")
    page._checked(result(checkup=checkup))
    page.checkup_file.unlink()


@scene("hardware-done")
def hardware_done(window):
    note = "This machine goes to sleep after 30 idle minutes, which interrupts a run."
    _hardware(window, machines.checkup(machines.machine(machines.gpu()), notes=[note]))


@scene("hardware-pair")
def hardware_pair(window):
    _hardware(window, machines.checkup(machines.pair()))


@scene("hardware-eight")
def hardware_eight(window):
    _hardware(window, machines.checkup(machines.eight()))
    _live(window, made_up(8, name="NVIDIA H100 80GB HBM3", total=80 * machines.GIB))


@scene("hardware-live")
def hardware_live(window):
    _hardware(window, machines.checkup(machines.machine(machines.gpu())))
    _live(window, made_up())


@scene("hardware-alarm")
def hardware_alarm(window):
    _hardware(window, machines.checkup(machines.machine(machines.gpu())))
    run = summary("running")
    run = run.model_copy(update={"state": run.state.model_copy(update={"device": "cuda-0"})})
    window.hardware.runs_changed([run])
    _live(window, made_up(filled=40))


def _live(window, lines):
    for line in lines:
        window.hardware.monitor._received(line)


@scene("hardware-problem")
def hardware_problem(window):
    """There is a GPU, and its driver does not answer."""
    problem = "nvidia-smi answers: couldn't communicate with the NVIDIA driver. Install it again, then restart."
    _hardware(window, machines.checkup(machines.machine(gpu_problem=problem), ready=False, problems=[problem]))


@scene("hardware-error")
def hardware_error(window):
    page = window.page("hardware")
    page._machine_failed(failure("This machine could not be read: /proc/meminfo is not there.", "Start it as usual."))


@scene("hardware-cpu")
def hardware_cpu(window):
    _hardware(window, machines.checkup(machines.machine()), machines.what_fits_on_a_processor())


@scene("hardware-fits")
def hardware_fits(window):
    _hardware(window, machines.checkup(machines.machine(machines.gpu())))
    page = window.page("hardware")
    settle()
    page.findChild(QScrollArea).ensureWidgetVisible(page.fits)


@scene("hardware-fitsnone")
def hardware_fits_none(window):
    _hardware(window, machines.checkup(machines.machine(machines.gpu())), machines.what_fits_nowhere())
    page = window.page("hardware")
    settle()
    page.findChild(QScrollArea).ensureWidgetVisible(page.fits)


@scene("hardware-fitsbusy")
def hardware_fits_busy(window):
    page = window.page("hardware")
    page._found(result(machine=machines.machine(machines.gpu())))
    page.fits.set_progress("Qwen3 4B Instruct 2507", 2, 7)


@scene("hardware-failed")
def hardware_failed(window):
    problem = "The NVIDIA driver (525.60) is older than CUDA 12.8 needs (570). Update it, then check again."
    _hardware(window, machines.checkup(machines.machine(machines.gpu()), ready=False, problems=[problem]))
