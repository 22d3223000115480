"""A line whenever a command would be silent for three seconds, and the backend that is chosen."""

from __future__ import annotations

import os
import pty
import sys
import time

from bfl import printing
from bfl.engine.flower.app import FlowerApp
from bfl.experiments.run.simulation import chosen_backend


def test_silence_is_filled_and_speech_is_not_interrupted(monkeypatch, capsys) -> None:
    monkeypatch.setattr(printing, "SILENCE", 0.3)
    with printing.shown(), printing.shown():
        printing.doing("the network is built")
        for _ in range(8):
            printing.spoke()
            time.sleep(0.1)
        assert capsys.readouterr().out == ""
        time.sleep(1.5)
        printing.detail("1 of 3")  # a log has no line for each client
        time.sleep(0.7)
        printing.doing("the network trains")
        printing.detail("2 of 3")
        time.sleep(0.7)
    first, last = capsys.readouterr().out.splitlines()
    assert first.endswith("s] the network is built ...")
    assert last.endswith("s] the network trains: 2 of 3 ...")
    time.sleep(0.7)
    assert capsys.readouterr().out == ""


def test_what_has_not_changed_comes_again_and_rarer_with_time(monkeypatch, capsys) -> None:
    for name in ("SILENCE", "REPEATED"):
        monkeypatch.setattr(printing, name, 0.3)
    counts = []
    for changed in (0.0, -60.0):
        with printing.shown():
            printing.doing("waiting")
            monkeypatch.setattr(printing, "_changed", time.monotonic() + changed)
            time.sleep(1.5)
        counts.append(capsys.readouterr().out.count("waiting"))
    assert counts[0] >= 3 > counts[1]


def test_a_terminal_has_one_line_that_the_next_print_takes_away(monkeypatch) -> None:
    monkeypatch.setattr(printing, "SILENCE", 0.0)
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        printing.print_anywhere()
        with printing.shown():
            printing.doing("waiting")
            time.sleep(1.7)
            print("over", flush=True)
        shown = ""
        while "\n" not in shown:
            shown += os.read(ours, 10_000).decode()
    assert shown.count("waiting ...\r") >= 2
    assert shown.count("\n") == 1
    assert "\x1b[2Kover" in shown


def test_a_small_run_starts_no_ray_and_another_app_always_does() -> None:
    own, config = FlowerApp.own(), {"client_resources": {"num_cpus": 2}}
    assert chosen_backend("auto", own, {"rounds": 1}, {}) == "serial"
    assert chosen_backend("auto", own, {"rounds": 1}, config) == "ray"
    assert chosen_backend("auto", own, {"rounds": 1000}, {}) == "ray"
    few = {"rounds": 1000, "train-examples": 20}
    assert chosen_backend("auto", own, few, {}) == "serial"
    assert chosen_backend("ray", own, {"rounds": 1}, {}) == "ray"
    learns = {"rounds": 1, "pretrain-examples": 20, "server-threads": 2}
    assert chosen_backend("auto", own, learns, {}) == "ray"
    assert chosen_backend("auto", own, {**learns, "server-threads": 1}, {}) == "serial"
