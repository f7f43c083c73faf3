"""The stages of an export, and what it will take, in words."""

from app.facts import export_facts as facts

from burnish_app.wording.export_stages import forecast_problem, forecast_text, job_stages


def status(what, **changes):
    return {stage.text: stage.status for stage in job_stages(facts.job(what=what, **changes), importance=True)}


def test_stages_follow_what_the_job_says():
    start = status("Starting")
    assert list(start) == [
        "Writing the 16-bit file",
        "Running the trained model",
        "Weighing what the training rows use",
        "Checking the 16-bit file",
        "Making Q8_0",
        "Checking Q8_0",
        "Making Q4_K_M",
        "Checking Q4_K_M",
    ]
    assert set(start.values()) == {"waiting"}
    assert status("Writing the 16-bit file")["Writing the 16-bit file"] == "now"
    checking = status("Checking F16")
    assert (checking["Running the trained model"], checking["Checking the 16-bit file"]) == ("done", "now")
    assert set(status("Done").values()) == {"done"}


def test_only_what_is_done_is_listed():
    plain = facts.job(quants=["Q8_0", "F16"])
    assert [stage.text for stage in job_stages(plain, importance=True)][2:] == [
        "Checking the 16-bit file",
        "Making Q8_0",
        "Checking Q8_0",
    ], "Q8_0 has no use for an importance matrix, and F16 is the file the others are made from"
    assert job_stages(facts.job(to="safetensors"), importance=True) == []


def test_a_forecast_says_whether_it_will_go_through():
    assert forecast_text(facts.forecast(seconds=1.0)).endswith("about 5 s.")
    assert forecast_problem(facts.forecast()) == ""
    assert "disk" in forecast_problem(facts.forecast(disk_free_bytes=1))
    assert "memory" in forecast_problem(facts.forecast(memory_free_bytes=1))
